//! Routes of the questions: one generic handler per form of request.

use super::{App, blocking};
use crate::answers::{
    AnswerConfig, AnswerData, AnswerError, Asker, Question, QuestionVisitor, RequestForm,
    ServedQuestion, for_each_question,
};
use axum::Router;
use axum::extract::{Form, Json, Query, State};
use axum::routing::{MethodRouter, get, post};
use serde::de::IntoDeserializer;
use serde::de::value::Error as ValueError;
use std::sync::{Arc, LazyLock};

/// The routes of all questions.
pub(super) fn router(app: App) -> Router {
    let mut routes = Routes(Router::new());
    for_each_question(&mut routes);
    routes.0.with_state(app)
}

/// Whether a POST to this path changes nothing, so that it needs no token from this machine.
pub(super) fn only_reads(path: &str) -> bool {
    static READING_POSTS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
        let mut posts = ReadingPosts(Vec::new());
        for_each_question(&mut posts);
        posts.0
    });
    READING_POSTS.contains(&path)
}

struct Routes(Router<App>);

impl QuestionVisitor for Routes {
    fn question<Q: ServedQuestion>(&mut self) {
        let router = std::mem::take(&mut self.0);
        self.0 = router.route(Q::PATH, handler::<Q>());
    }
}

struct ReadingPosts(Vec<&'static str>);

impl QuestionVisitor for ReadingPosts {
    fn question<Q: ServedQuestion>(&mut self) {
        if Q::REQUEST != RequestForm::Get && !Q::CHANGES {
            self.0.push(Q::PATH);
        }
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
    asker: Asker,
    Query(question): Query<Q>,
) -> Reply<Q> {
    answer(app, asker, question).await
}

async fn from_form<Q: ServedQuestion>(
    State(app): State<App>,
    asker: Asker,
    Form(question): Form<Q>,
) -> Reply<Q> {
    answer(app, asker, question).await
}

async fn from_json<Q: ServedQuestion>(
    State(app): State<App>,
    asker: Asker,
    Json(question): Json<Q>,
) -> Reply<Q> {
    answer(app, asker, question).await
}

async fn from_text<Q: ServedQuestion>(
    State(app): State<App>,
    asker: Asker,
    text: String,
) -> Reply<Q> {
    let deserializer = IntoDeserializer::<ValueError>::into_deserializer(text);
    let question = Q::deserialize(deserializer).map_err(AnswerError::usage)?;
    answer(app, asker, question).await
}

async fn answer<Q: ServedQuestion>(app: App, asker: Asker, question: Q) -> Reply<Q> {
    let config: Arc<AnswerConfig> = Arc::clone(&app.config);
    blocking(move || question.answer(&asker, Q::Data::of(&app.store), &config)).await
}
