//! One client: its statements, simple and prepared, and what it was told to remember.

use super::auth::Door;
use super::command::{Command, DEFAULTS, command, milliseconds};
use super::dialect::translate;
use super::encode::{fields, row};
use super::parameter::{Parameter, bind, count, literals, null, told};
use super::token::{Token, statements};
use async_trait::async_trait;
use futures_util::{Sink, stream};
use pgwire::api::portal::{Format, Portal};
use pgwire::api::query::{ExtendedQueryHandler, SimpleQueryHandler};
use pgwire::api::results::{
    DescribePortalResponse, DescribeStatementResponse, FieldFormat, FieldInfo, QueryResponse,
    Response, Tag,
};
use pgwire::api::stmt::{QueryParser, StoredStatement};
use pgwire::api::store::PortalStore;
use pgwire::api::{
    ClientInfo, ClientPortalStore, ConnectionHandle, ConnectionManager, METADATA_USER,
    PgWireServerHandlers, Type, cancel::DefaultCancelHandler,
};
use pgwire::error::{ErrorInfo, PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::extendedquery::Execute;
use pgwire::messages::response::TransactionStatus;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use takt_store::Database;
use takt_store::sql::{Answer, Cancel, Limits, Session, SqlError};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// A client that asks for rows in portions gets at most so many at once.
const MAX_PORTION: i32 = 100_000;

/// So often a client that pipelines is looked for.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The handlers of one connection.
#[derive(Clone)]
pub struct Sessions {
    pub(super) database: Arc<Database>,
    pub(super) limits: Limits,
    pub(super) door: Arc<Door>,
    pub(super) manager: Arc<ConnectionManager>,
    /// The same socket once more, to see its end while a statement runs.
    pub(super) peer: Arc<TcpStream>,
    /// Cancelled once the client has logged in.
    pub(super) logged_in: CancellationToken,
    /// Opened by the first statement.
    pub(super) session: Arc<Mutex<Option<Session>>>,
    pub(super) settings: Arc<Mutex<HashMap<String, String>>>,
}

/// A statement that was prepared.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// As it came.
    text: Arc<str>,
    /// The types of its parameters that the client was told, once it has asked: it sends values of these.
    told: Arc<OnceLock<Vec<Type>>>,
}

impl PgWireServerHandlers for Sessions {
    fn simple_query_handler(&self) -> Arc<impl SimpleQueryHandler> {
        Arc::new(self.clone())
    }

    fn extended_query_handler(&self) -> Arc<impl ExtendedQueryHandler> {
        Arc::new(self.clone())
    }

    fn startup_handler(&self) -> Arc<impl pgwire::api::auth::StartupHandler> {
        Arc::new(self.clone())
    }

    fn cancel_handler(&self) -> Arc<impl pgwire::api::cancel::CancelHandler> {
        Arc::new(DefaultCancelHandler::new(Arc::clone(&self.manager)))
    }
}

/// What a statement came to.
enum Outcome {
    Rows(Answer),
    /// One row of one text.
    Text(String, String),
    Done(Response),
}

/// Asks for the end of a statement when nobody waits for it any more.
struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Sessions {
    async fn run<C: ClientInfo>(
        &self,
        client: &C,
        statement: &[Token<'_>],
    ) -> PgWireResult<Outcome> {
        let asked = command(statement);
        if client.transaction_status() == TransactionStatus::Error {
            return match asked {
                Command::Rollback | Command::Commit => Ok(Outcome::Done(Response::TransactionEnd(
                    Tag::new("ROLLBACK"),
                ))),
                _ => Err(error(
                    "25P02",
                    "current transaction is aborted, commands ignored until end of transaction block",
                )),
            };
        }
        Ok(match asked {
            Command::Select => Outcome::Rows(self.select(client, translate(statement)).await?),
            Command::Begin => Outcome::Done(Response::TransactionStart(Tag::new("BEGIN"))),
            Command::Commit => Outcome::Done(Response::TransactionEnd(Tag::new("COMMIT"))),
            Command::Rollback => Outcome::Done(Response::TransactionEnd(Tag::new("ROLLBACK"))),
            Command::Accepted(tag) => Outcome::Done(Response::Execution(Tag::new(tag))),
            Command::Set { name, value } => {
                let mut settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
                match value {
                    Some(value) => drop(settings.insert(name, value)),
                    None => drop(settings.remove(&name)),
                }
                Outcome::Done(Response::Execution(Tag::new("SET")))
            }
            Command::Show(name) => {
                let value = self.setting(&name).ok_or_else(|| {
                    error(
                        "42704",
                        &format!("unrecognized configuration parameter \"{name}\""),
                    )
                })?;
                Outcome::Text(name, value)
            }
            Command::Refused(what) => {
                return Err(error(
                    "25006",
                    &format!("refused: {what}; only SELECT statements are answered"),
                ));
            }
        })
    }

    fn setting(&self, name: &str) -> Option<String> {
        let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        let default = DEFAULTS
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| (*value).to_owned());
        settings.get(name).cloned().or(default)
    }

    /// The limits, with a shorter time where the client asked for that.
    fn limits(&self) -> Limits {
        let asked = self
            .setting("statement_timeout")
            .and_then(|text| milliseconds(&text));
        let timeout = asked.map_or(self.limits.timeout, |n| {
            Duration::from_millis(n).min(self.limits.timeout)
        });
        Limits {
            timeout,
            ..self.limits
        }
    }

    /// DuckDB blocks, so it is asked on a thread of its own; it is interrupted when the client goes away.
    async fn select<C: ClientInfo>(&self, client: &C, sql: String) -> PgWireResult<Answer> {
        let (limits, cancel) = (self.limits(), Cancel::default());
        let _guard = CancelOnDrop(cancel.clone());
        let running = self.ask(client, move |session, database| {
            session.select(database, &sql, limits, &cancel)
        });
        let answer = running.await?.map_err(|failure| sql_error(&failure))?;
        match answer.truncated() {
            true => Err(error(
                "54000",
                &format!(
                    "the answer has more than {} rows (sql.max_rows); LIMIT or aggregate it",
                    limits.max_rows
                ),
            )),
            false => Ok(answer),
        }
    }

    /// Asks the session, on a thread that may wait.
    async fn ask<C: ClientInfo, T: Send + 'static>(
        &self,
        client: &C,
        question: impl FnOnce(&Session, &Database) -> Result<T, SqlError> + Send + 'static,
    ) -> PgWireResult<Result<T, SqlError>> {
        let user = client
            .metadata()
            .get(METADATA_USER)
            .cloned()
            .unwrap_or_default();
        let (database, session) = (Arc::clone(&self.database), Arc::clone(&self.session));
        let running = tokio::task::spawn_blocking(move || {
            let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
            let session = match session.as_mut() {
                Some(session) => session,
                None => session.insert(Session::open_postgres(&database, &user)?),
            };
            question(session, &database)
        });
        tokio::select! {
            answer = running => answer.map_err(|error| PgWireError::ApiError(Box::new(error))),
            () = self.client_gone() => Ok(Err(SqlError::Cancelled)),
        }
    }

    /// The types of a statement's parameters: what the client named, else by where they stand, else text. A statement
    /// that cannot be bound is told so when its columns are asked for.
    async fn parameter_types<C: ClientInfo>(
        &self,
        client: &C,
        statement: &[Token<'_>],
        named: &[Option<Type>],
    ) -> PgWireResult<Vec<Type>> {
        let count = count(statement).max(named.len());
        let named = |at: usize| named.get(at).cloned().flatten();
        let found = match (0..count).all(|at| named(at).is_some()) {
            true => HashMap::new(),
            false => {
                let sql = translate(statement);
                self.ask(client, move |session, _| session.parameter_types(&sql))
                    .await?
                    .unwrap_or_default()
            }
        };
        let found = |at: usize| told(found.get(&(at + 1)).map(String::as_str));
        Ok((0..count)
            .map(|at| named(at).unwrap_or_else(|| found(at)))
            .collect())
    }

    /// Returns once the client has closed its end.
    async fn client_gone(&self) {
        loop {
            match self.peer.peek(&mut [0]).await {
                Ok(0) | Err(_) => return,
                Ok(_) => tokio::time::sleep(LOOK_INTERVAL).await,
            }
        }
    }

    /// A statement that was prepared, with its parameters.
    async fn run_prepared<C: ClientInfo>(
        &self,
        client: &C,
        portal: &Portal<Prepared>,
    ) -> PgWireResult<Outcome> {
        let Prepared { text, told } = &portal.statement.statement;
        let parameters: Vec<Parameter<'_>> = portal
            .parameters
            .iter()
            .enumerate()
            .map(|(at, bytes)| {
                let binary = format_of(&portal.parameter_format, at) == FieldFormat::Binary;
                let named = portal
                    .statement
                    .parameter_types
                    .get(at)
                    .and_then(Option::as_ref);
                // A text without a type is an untyped literal, which fits better than a type we guessed.
                let told = told.get().filter(|_| binary).and_then(|told| told.get(at));
                Parameter {
                    bytes: bytes.as_deref(),
                    binary,
                    kind: named.or(told),
                }
            })
            .collect();
        let literals =
            literals(&parameters).map_err(|problem| error("22P02", &problem.to_string()))?;
        let Some(statement) = statements(text).pop() else {
            return Ok(Outcome::Done(Response::EmptyQuery));
        };
        let bound =
            bind(&statement, &literals).map_err(|problem| error("08P01", &problem.to_string()))?;
        self.run(client, &bound).await
    }
}

/// A column's format; what the client did not say is text.
fn format_of(format: &Format, at: usize) -> FieldFormat {
    match format {
        Format::UnifiedText => FieldFormat::Text,
        Format::UnifiedBinary => FieldFormat::Binary,
        Format::Individual(codes) => codes
            .get(at)
            .map_or(FieldFormat::Text, |&code| FieldFormat::from(code)),
    }
}

fn response(outcome: Outcome, format: &Format) -> Response {
    match outcome {
        Outcome::Rows(answer) => {
            let fields = Arc::new(fields(answer.schema(), |at| format_of(format, at)));
            let schema = Arc::clone(&fields);
            let rows = answer.into_batches().into_iter().flat_map(move |batch| {
                let fields = Arc::clone(&fields);
                (0..batch.num_rows()).map(move |at| Ok(row(&batch, at, &fields)))
            });
            Response::Query(QueryResponse::new(schema, stream::iter(rows)))
        }
        Outcome::Text(name, value) => {
            let field = FieldInfo::new(name, None, None, Type::TEXT, FieldFormat::Text);
            let fields = Arc::new(vec![field]);
            let mut encoder = pgwire::api::results::DataRowEncoder::new(Arc::clone(&fields));
            let row = encoder.encode_field(&value).map(|()| encoder.take_row());
            Response::Query(QueryResponse::new(fields, stream::iter([row])))
        }
        Outcome::Done(response) => response,
    }
}

fn error(code: &str, message: &str) -> PgWireError {
    PgWireError::UserError(Box::new(ErrorInfo::new(
        "ERROR".to_owned(),
        code.to_owned(),
        message.to_owned(),
    )))
}

/// PostgreSQL's code for what went wrong; clients decide by it whether to ask again.
fn sql_error(failure: &SqlError) -> PgWireError {
    let message = failure.to_string();
    let code = match failure {
        SqlError::Refused(_) => "42501",
        SqlError::Timeout(_) | SqlError::Cancelled => "57014",
        SqlError::Memory => "53200",
        SqlError::TooLarge => "54000",
        SqlError::Store(_) => "58000",
        SqlError::Statement(text) => match text.split_once(':').map_or("", |(kind, _)| kind) {
            "Parser Error" => "42601",
            "Catalog Error" if text.contains("Function with name") => "42883",
            "Catalog Error" => "42P01",
            "Binder Error" if text.contains("column") => "42703",
            "Binder Error" => "42804",
            "Conversion Error" | "Invalid Input Error" => "22P02",
            "Out of Range Error" => "22003",
            "Out of Memory Error" => "53200",
            _ => "XX000",
        },
    };
    error(code, &message)
}

#[async_trait]
impl SimpleQueryHandler for Sessions {
    async fn do_query<C>(&self, client: &mut C, query: &str) -> PgWireResult<Vec<Response>>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let statements = statements(query);
        if statements.is_empty() {
            return Ok(vec![Response::EmptyQuery]);
        }
        let mut responses = Vec::with_capacity(statements.len());
        for statement in statements {
            match self.run(client, &statement).await {
                Ok(outcome) => responses.push(response(outcome, &Format::UnifiedText)),
                // What came before has been answered; what follows is not looked at.
                Err(PgWireError::UserError(info)) => {
                    responses.push(Response::Error(info));
                    break;
                }
                Err(other) => return Err(other),
            }
        }
        Ok(responses)
    }
}

/// Takes a statement as it is; DuckDB sees it with its parameters.
#[derive(Debug)]
pub struct AsItIs;

#[async_trait]
impl QueryParser for AsItIs {
    type Statement = Prepared;

    async fn parse_sql<C>(
        &self,
        _: &C,
        sql: &str,
        _: &[Option<Type>],
    ) -> PgWireResult<Option<Prepared>>
    where
        C: ClientInfo + Unpin + Send + Sync,
    {
        match statements(sql).len() {
            0 => Ok(None),
            1 => Ok(Some(Prepared {
                text: sql.into(),
                told: Arc::default(),
            })),
            _ => Err(error(
                "42601",
                "cannot insert multiple commands into a prepared statement",
            )),
        }
    }

    fn get_parameter_types(&self, statement: &Prepared) -> PgWireResult<Vec<Type>> {
        let names = statements(&statement.text)
            .first()
            .map_or(0, |tokens| count(tokens));
        Ok(vec![Type::TEXT; names])
    }

    fn get_result_schema(&self, _: &Prepared, _: Option<&Format>) -> PgWireResult<Vec<FieldInfo>> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl ExtendedQueryHandler for Sessions {
    type Statement = Prepared;
    type QueryParser = AsItIs;

    fn query_parser(&self) -> Arc<AsItIs> {
        Arc::new(AsItIs)
    }

    /// The portion a client asks for is allocated at once: one that asks for more than there can be asks for all.
    async fn on_execute<C>(&self, client: &mut C, mut message: Execute) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        if !(0..=MAX_PORTION).contains(&message.max_rows) {
            message.max_rows = 0;
        }
        self._on_execute(client, message).await
    }

    async fn do_describe_statement<C>(
        &self,
        client: &mut C,
        target: &StoredStatement<Prepared>,
    ) -> PgWireResult<DescribeStatementResponse>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let Some(statement) = statements(&target.statement.text).pop() else {
            return Ok(DescribeStatementResponse::new(Vec::new(), Vec::new()));
        };
        let told = self
            .parameter_types(client, &statement, &target.parameter_types)
            .await?;
        let told = target.statement.told.get_or_init(|| told).clone();
        if command(&statement) != Command::Select {
            let rows = match self.run(client, &statement).await? {
                Outcome::Text(name, _) => vec![FieldInfo::new(
                    name,
                    None,
                    None,
                    Type::TEXT,
                    FieldFormat::Text,
                )],
                _ => Vec::new(),
            };
            return Ok(DescribeStatementResponse::new(told, rows));
        }
        // With NULL for each parameter, and no rows, it has the columns that it will have.
        let described = |text: &str| -> PgWireResult<String> {
            let null = |kind: &Type| {
                if *kind == Type::TEXT {
                    text.to_owned()
                } else {
                    null(kind)
                }
            };
            let nulls: Vec<String> = told.iter().map(null).collect();
            let bound =
                bind(&statement, &nulls).map_err(|problem| error("08P01", &problem.to_string()))?;
            Ok(format!("SELECT * FROM ({}\n) LIMIT 0", translate(&bound)))
        };
        let answer = match self.select(client, described("NULL::VARCHAR")?).await {
            // A text that has no type fits where a VARCHAR does not.
            Err(_) if told.contains(&Type::TEXT) => self.select(client, described("NULL")?).await?,
            answer => answer?,
        };
        Ok(DescribeStatementResponse::new(
            told,
            fields(answer.schema(), |_| FieldFormat::Text),
        ))
    }

    /// Asks DuckDB already: only then are the columns known. The rows wait for `Execute`.
    async fn do_describe_portal<C>(
        &self,
        client: &mut C,
        target: &Portal<Prepared>,
    ) -> PgWireResult<DescribePortalResponse>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let statement = statements(&target.statement.statement.text)
            .pop()
            .unwrap_or_default();
        if !matches!(command(&statement), Command::Select | Command::Show(_)) {
            return Ok(DescribePortalResponse::new(Vec::new()));
        }
        let handle = client.session_extensions().get::<Arc<ConnectionHandle>>();
        let outcome = match handle {
            Some(handle) => {
                let cancelled = handle.start_query().await;
                tokio::select! {
                    outcome = self.run_prepared(client, target) => outcome?,
                    Ok(()) = cancelled => return Err(PgWireError::QueryCanceled),
                }
            }
            None => self.run_prepared(client, target).await?,
        };
        match response(outcome, &target.result_column_format) {
            Response::Query(found) => {
                let fields = found.row_schema().as_ref().clone();
                target.start(found).await;
                Ok(DescribePortalResponse::new(fields))
            }
            _ => Ok(DescribePortalResponse::new(Vec::new())),
        }
    }

    async fn do_query<C>(
        &self,
        client: &mut C,
        portal: &Portal<Prepared>,
        _: usize,
    ) -> PgWireResult<Response>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        Ok(response(
            self.run_prepared(client, portal).await?,
            &portal.result_column_format,
        ))
    }
}
