//! Routes of the questions: one handler for all of them, and for each question a function that reads and answers it.

use super::held::AnswerWriter;
use super::{App, AppParts};
use axum::body::Bytes;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, Json, Query, Request, State};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use serde::de::value::Error as ValueError;
use serde::de::{IgnoredAny, IntoDeserializer};
use std::mem;
use std::sync::Arc;
use takt_access::{Need, RouteNeeds, Viewer};
use takt_identity::{By, ErrorBody, GuardedRouter};
use takt_questions::query_memory::account_of;
use takt_questions::{
    AnswerData, AnswerError, QuestionVisitor, RequestForm, ServedQuestion, for_each_question,
};
use takt_store::{MemoryAccount, WorkError, spawn_blocking};

/// The routes of all questions.
pub(super) fn router(app: App) -> GuardedRouter {
    let mut routes = Routes(GuardedRouter::new());
    for_each_question(&mut routes);
    routes.0.with_state(app)
}

struct Routes(GuardedRouter<App>);

impl QuestionVisitor for Routes {
    fn question<Q: ServedQuestion>(&mut self) {
        self.0 = mem::take(&mut self.0).route(
            Q::PATH,
            needs(Q::NEED),
            handler(Q::REQUEST, Q::NEED, respond::<Q>),
        );
    }
}

/// The needs of a question's route.
fn needs(need: Need) -> RouteNeeds {
    match need {
        Need::Change(role) => RouteNeeds::change(role),
        need => RouteNeeds::read(need),
    }
}

/// A request, before its question's type is known.
struct Asked {
    uri: Uri,
    /// Empty, unless the question is there.
    body: Bytes,
}

type Respond = fn(&Asked, &Viewer, &AppParts, &MemoryAccount) -> Response;

fn handler(form: RequestForm, need: Need, respond: Respond) -> MethodRouter<App> {
    // A question that is sent with a body, or that changes something, is a POST.
    let method = match form {
        RequestForm::Get => MethodFilter::GET,
        _ => MethodFilter::POST,
    };

    on(
        method,
        async move |State(app): State<App>, By(viewer): By, request: Request| {
            let asked = match Asked::receive(form, request).await {
                Ok(asked) => asked,
                Err(refusal) => return refusal,
            };
            let app = Arc::clone(app.of(&viewer));
            let memory = account_of(&app.config.memory, &viewer);
            let account = memory.clone();
            let work = app.config.work.clone();
            let answer = move || respond(&asked, &viewer, &app, &memory);
            let answered = match (form, need) {
                // Statements in SQL have places of their own, and end at limits of their own.
                (RequestForm::PostText, _) => {
                    spawn_blocking(answer).await.map_err(WorkError::Failed)
                }
                (_, Need::Change(_)) => work.change(&account, answer).await,
                _ => work.read(&account, answer).await,
            };
            answered
                .unwrap_or_else(|error| ErrorBody::from(AnswerError::from(error)).into_response())
        },
    )
}

impl Asked {
    async fn receive(form: RequestForm, request: Request) -> Result<Self, Response> {
        let uri = request.uri().clone();

        let body = match form {
            RequestForm::Get | RequestForm::PostQuery => Bytes::new(),
            RequestForm::PostForm | RequestForm::PostText => String::from_request(request, &())
                .await
                .map_err(IntoResponse::into_response)?
                .into(),
            RequestForm::PostJson => {
                let (parts, body) = request.into_parts();
                // The body is kept as bytes, because the type of the question is known only to
                // `respond`.
                let body = Bytes::from_request(Request::from_parts(parts.clone(), body), &())
                    .await
                    .map_err(IntoResponse::into_response)?;
                // Refuses other content types.
                let request = Request::from_parts(parts, body.clone().into());
                Json::<IgnoredAny>::from_request(request, &())
                    .await
                    .map(|_| body)
                    .map_err(IntoResponse::into_response)?
            }
        };
        Ok(Self { uri, body })
    }
}

/// Reads and answers one question.
fn respond<Q>(asked: &Asked, viewer: &Viewer, app: &AppParts, memory: &MemoryAccount) -> Response
where
    Q: ServedQuestion,
{
    // Evaluated by the compiler, so that only one of the functions is compiled for each question.
    let read = const { reader::<Q>() };
    match read(asked) {
        Ok(question) => {
            let mut out = AnswerWriter::new(memory);
            let data = Q::Data::of(&app.store);
            let written = question.write_answer(viewer, data, &app.config, memory, &mut out);
            answered(written, out)
        }
        Err(refusal) => refusal.into_response(),
    }
}

fn answered(written: Result<(), AnswerError>, out: AnswerWriter) -> Response {
    // A writer without memory fails with an error of its own, which says less than its refusal.
    let failed = written.err();
    match out.finish() {
        Err(refusal) => ErrorBody::from(AnswerError::from(refusal)).into_response(),
        Ok(answer) => match failed {
            Some(error) => ErrorBody::from(error).into_response(),
            None => answer.respond("application/json"),
        },
    }
}

type Reader<Q> = fn(&Asked) -> Result<Q, Refusal>;

const fn reader<Q>() -> Reader<Q>
where
    Q: ServedQuestion,
{
    match Q::REQUEST {
        RequestForm::Get | RequestForm::PostQuery => from_query,
        RequestForm::PostForm => panic!("no question of the API is a form"),
        RequestForm::PostJson => from_json,
        RequestForm::PostText => from_text,
    }
}

enum Refusal {
    Parameters(AnswerError),
    Json(JsonRejection),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::Parameters(error) => ErrorBody::from(error).into_response(),
            Self::Json(rejection) => rejection.into_response(),
        }
    }
}

fn from_query<Q>(asked: &Asked) -> Result<Q, Refusal>
where
    Q: ServedQuestion,
{
    match Query::try_from_uri(&asked.uri) {
        Ok(Query(question)) => Ok(question),
        Err(refused) => Err(Refusal::Parameters(malformed(&refused.body_text()))),
    }
}

fn from_json<Q>(asked: &Asked) -> Result<Q, Refusal>
where
    Q: ServedQuestion,
{
    let Json(question) = Json::from_bytes(&asked.body).map_err(Refusal::Json)?;
    Ok(question)
}

fn from_text<Q>(asked: &Asked) -> Result<Q, Refusal>
where
    Q: ServedQuestion,
{
    // `receive` refuses bodies that are not UTF-8, so nothing is lost.
    let text = String::from_utf8_lossy(&asked.body).into_owned();
    let deserializer = IntoDeserializer::<ValueError>::into_deserializer(text);
    Q::deserialize(deserializer).map_err(|error| Refusal::Parameters(AnswerError::usage(error)))
}

/// Describes a mistake in the parameters, in the words of the reader instead of the parser's.
fn malformed(said: &str) -> AnswerError {
    let said = said.strip_prefix("Failed to deserialize ").unwrap_or(said);
    // axum says `Failed to deserialize query string: key: reason`.
    let said = said.split_once(": ").map_or(said, |(_, rest)| rest);
    let (key, said) = said.split_once(": ").unwrap_or(("parameters", said));

    let expected = match said {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            "expected a whole number".to_owned()
        }
        "invalid float literal" | "cannot parse float from empty string" => {
            "expected a number".to_owned()
        }
        "provided string was not `true` or `false`" => "expected true or false".to_owned(),
        _ if said.starts_with("unknown field") => {
            let known = said.split_once("expected ").map_or("", |(_, known)| known);
            let known = known.trim_start_matches("one of ").replace('`', "");
            format!("no such parameter; expected one of {known}")
        }
        _ => said.replace('`', ""),
    };

    AnswerError::Usage(format!("{key}: {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_model::UnixTime;
    use takt_questions::{CreditOrder, EndedAlertsQuestion, EventsQuestion, HistoryQuestion};

    #[test]
    fn an_instant_beyond_the_years_of_dates_is_refused() {
        fn read<Q: ServedQuestion>(query: &str) -> Result<Q, String> {
            let uri = format!("/?{query}").parse().unwrap();
            let body = Bytes::new();
            from_query(&Asked { uri, body }).map_err(|refusal| match refusal {
                Refusal::Parameters(error) => error.to_string(),
                Refusal::Json(rejection) => rejection.body_text(),
            })
        }
        let expected =
            "99999999999999 is not a time: expected seconds since 1970, in the years -9999 to 9999";
        for refused in [
            read::<EventsQuestion>("from=99999999999999").map(drop),
            read::<HistoryQuestion>("to=99999999999999").map(drop),
            read::<EndedAlertsQuestion>("from=99999999999999").map(drop),
            read::<EndedAlertsQuestion>("to=99999999999999").map(drop),
        ] {
            let (_, said) = refused.as_ref().unwrap_err().split_once(": ").unwrap();
            assert_eq!(said, expected);
        }
        // 9999-12-30: the last times of dates are accepted.
        let alerts = read::<EndedAlertsQuestion>("from=1&to=253402207200").unwrap();
        assert_eq!(alerts.to, Some(UnixTime(253_402_207_200)));
        let order: CreditOrder = serde_json::from_str("{\"submit\":null}").unwrap();
        assert_eq!(order.submit, None);
    }

    #[test]
    fn mistakes_in_parameters_are_described_plainly() {
        for (said, expected) in [
            (
                "Failed to deserialize query string: limit: invalid digit found in string",
                "limit: expected a whole number",
            ),
            (
                "Failed to deserialize query string: plan_hours: invalid float literal",
                "plan_hours: expected a number",
            ),
            (
                "Failed to deserialize query string: foo: unknown field `foo`, expected one of `a`, `b`",
                "foo: no such parameter; expected one of a, b",
            ),
        ] {
            assert_eq!(malformed(said).to_string(), expected);
        }
    }
}
