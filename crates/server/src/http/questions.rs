//! Routes of the questions: one generic handler per form of request.

use super::{App, By, GuardedRouter, blocking};
use crate::answers::{
    AnswerData, AnswerError, Question, QuestionVisitor, RequestForm, ServedQuestion,
    for_each_question,
};
use axum::extract::{Form, Json, Query, State};
use axum::routing::{MethodRouter, get, post};
use serde::de::IntoDeserializer;
use serde::de::value::Error as ValueError;
use std::sync::Arc;
use takt_access::{Need, RouteNeeds, Viewer};

/// The routes of all questions.
pub(super) fn router(app: App) -> GuardedRouter {
    let mut routes = Routes(GuardedRouter::new());
    for_each_question(&mut routes);
    routes.0.with_state(app)
}

struct Routes(GuardedRouter<App>);

impl QuestionVisitor for Routes {
    fn question<Q: ServedQuestion>(&mut self) {
        let router = std::mem::take(&mut self.0);
        self.0 = router.route(Q::PATH, needs::<Q>(), handler::<Q>());
    }
}

/// The needs of a question's route.
fn needs<Q: Question>() -> RouteNeeds {
    match Q::NEED {
        Need::Change(role) => RouteNeeds::change(role),
        need if Q::REQUEST == RequestForm::Get => RouteNeeds::get(need),
        need => RouteNeeds::read(need),
    }
}

fn handler<Q: ServedQuestion>() -> MethodRouter<App> {
    match Q::REQUEST {
        RequestForm::Get => get(from_query::<Q>),
        RequestForm::PostQuery => post(from_query::<Q>),
        RequestForm::PostForm => post(from_form::<Q>),
        RequestForm::PostJson => post(from_json::<Q>),
        RequestForm::PostText => post(from_text::<Q>),
    }
}

type Reply<Q> = Result<Json<<Q as Question>::Answer>, AnswerError>;

async fn from_query<Q: ServedQuestion>(
    State(app): State<App>,
    By(viewer): By,
    Query(question): Query<Q>,
) -> Reply<Q> {
    answer(app, viewer, question).await
}

async fn from_form<Q: ServedQuestion>(
    State(app): State<App>,
    By(viewer): By,
    Form(question): Form<Q>,
) -> Reply<Q> {
    answer(app, viewer, question).await
}

async fn from_json<Q: ServedQuestion>(
    State(app): State<App>,
    By(viewer): By,
    Json(question): Json<Q>,
) -> Reply<Q> {
    answer(app, viewer, question).await
}

async fn from_text<Q: ServedQuestion>(
    State(app): State<App>,
    By(viewer): By,
    text: String,
) -> Reply<Q> {
    let deserializer = IntoDeserializer::<ValueError>::into_deserializer(text);
    let question = Q::deserialize(deserializer).map_err(AnswerError::usage)?;
    answer(app, viewer, question).await
}

async fn answer<Q: ServedQuestion>(app: App, viewer: Viewer, question: Q) -> Reply<Q> {
    let app = Arc::clone(app.of(&viewer));
    blocking(move || question.answer(&viewer, Q::Data::of(&app.store), &app.config)).await
}
