//! One client connection: simple and prepared statements, and the session's settings.

use super::array_parameter::ItemStatement;
use super::auth::ClientAuth;
use super::command::{Command, DEFAULTS, command, milliseconds};
use super::dialect::translate;
use super::encode::{fields, row};
use super::parameter::{Parameter, bind, count, literals, null, reported_type};
use super::token::{Token, statements, token_count};
use async_trait::async_trait;
use futures_util::{Sink, SinkExt, stream};
use pgwire::api::portal::{Format, Portal};
use pgwire::api::query::{
    ExtendedQueryHandler, SimpleQueryHandler, send_execution_response, send_query_response,
    send_ready_for_query,
};
use pgwire::api::results::{
    DescribePortalResponse, DescribeStatementResponse, FieldFormat, FieldInfo, QueryResponse,
    Response, Tag,
};
use pgwire::api::stmt::{QueryParser, StoredStatement};
use pgwire::api::store::{Entry, PortalStore};
use pgwire::api::{
    ClientInfo, ClientPortalStore, ConnectionHandle, ConnectionManager, DEFAULT_NAME,
    METADATA_USER, PgWireConnectionState, PgWireServerHandlers, Type, cancel::DefaultCancelHandler,
};
use pgwire::error::{ErrorInfo, PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::extendedquery::{Bind, BindComplete, Execute};
use pgwire::messages::response::{EmptyQueryResponse, TransactionStatus};
use pgwire::messages::simplequery::Query;
use std::collections::HashMap;
use std::fmt::Debug;
use std::future::pending;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use takt_connections::{ClassPlaces, Connection, PlaceHolder};
use takt_store::sql::{Cancel, Limits, ResultSet, SqlClient, SqlError};
use takt_store::{Database, HeldMemory, MemoryAccount, MemoryBudget, MemoryRefusal, MemoryUse};
use tokio::net::TcpStream;
use tokio::time;
use tokio_util::bytes::Bytes;
use tokio_util::sync::CancellationToken;

/// Maximum number of rows in a portion, for clients that request portions.
const MAX_PORTION: i32 = 100_000;

/// Texts of fewer bytes take no memory that counts.
const SMALL_TEXT: usize = 64 << 10;

/// Bytes of a token in the lists that a statement goes through.
const TOKEN_BYTES: usize = 4 * size_of::<Token<'_>>();

/// Texts that a statement becomes on its way to the query process.
const TRANSLATIONS: usize = 4;

/// Bytes of a literal for one byte of a parameter.
const LITERAL_GROWTH: usize = 4;

/// Memory of a prepared statement or a portal besides its texts, in bytes.
const PREPARED_BYTES: usize = 1024;

/// Interval between two checks whether a client that pipelines is still connected.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The handlers of one connection.
#[derive(Clone)]
pub struct Sessions {
    pub(super) database: Arc<Database>,
    pub(super) limits: Limits,
    pub(super) auth: Arc<ClientAuth>,
    pub(super) memory: MemoryBudget,
    /// Name of the client's account, if the kernel names the client; else its user says whose memory
    /// it takes.
    pub(super) caller: Option<Arc<str>>,
    /// Whether the kernel names an admin as the client.
    pub(super) is_admin: bool,
    pub(super) manager: Arc<ConnectionManager>,
    /// A second handle of the socket, to notice its end while a statement runs.
    pub(super) peer: Arc<TcpStream>,
    /// Cancelled once the client has logged in.
    pub(super) logged_in: CancellationToken,
    /// Places for clients that are logged in.
    pub(super) places: Arc<ClassPlaces>,
    /// Who takes one of them.
    pub(super) holder: PlaceHolder,
    /// Holds the place.
    pub(super) connection: Arc<Connection>,
    /// Made by the first statement, when the user is known.
    pub(super) sql: Arc<Mutex<Option<SqlClient>>>,
    pub(super) settings: Arc<Mutex<HashMap<String, String>>>,
}

/// A prepared statement.
#[derive(Debug, Clone)]
pub struct PreparedStatement {
    /// Text of the statement as received.
    text: Arc<str>,
    /// Parameter types that the client received after a request: it sends values of these types.
    reported_types: Arc<OnceLock<Vec<Type>>>,
    /// Memory of the text, and of the parameters if they are bound.
    _memory: Vec<Arc<HeldMemory>>,
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

/// The result of a statement.
enum StatementResult {
    Rows(ResultSet),
    /// One row with one text.
    Text(String, String),
    Done(Response),
}

/// Cancels a statement when its result is no longer needed.
struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Sessions {
    /// The account whose memory the client takes, for one message.
    pub(super) fn account<C>(&self, client: &C) -> MemoryAccount
    where
        C: ClientInfo,
    {
        let by_password = || PlaceHolder::User(user_of(client).into()).to_string().into();
        let caller = self.caller.clone().unwrap_or_else(by_password);
        self.memory.account(caller).with_reserve(self.is_admin)
    }

    /// Holds memory for a statement or its parameters.
    async fn hold<C>(&self, client: &C, bytes: usize) -> PgWireResult<HeldMemory>
    where
        C: ClientInfo,
    {
        let mut memory = self.account(client).holder(MemoryUse::Statement);
        memory.grow_soon(bytes as u64).await.map_err(memory_error)?;
        Ok(memory)
    }

    /// Holds memory for the tokens of a statement, and for copies of its text.
    async fn hold_tokens<C>(
        &self,
        client: &C,
        text: &str,
        copies: usize,
    ) -> PgWireResult<HeldMemory>
    where
        C: ClientInfo,
    {
        let bytes = if text.len() < SMALL_TEXT {
            0
        } else {
            token_count(text) * TOKEN_BYTES + copies * text.len()
        };
        self.hold(client, bytes).await
    }

    async fn run<C>(&self, client: &C, statement: &[Token<'_>]) -> PgWireResult<StatementResult>
    where
        C: ClientInfo,
    {
        let asked = command(statement);
        // As in PostgreSQL: a COMMIT of a failed transaction is answered with ROLLBACK, and all
        // else is refused.
        if client.transaction_status() == TransactionStatus::Error {
            return match asked {
                Command::Rollback | Command::Commit => Ok(StatementResult::Done(
                    Response::TransactionEnd(Tag::new("ROLLBACK")),
                )),
                _ => Err(error(
                    "25P02",
                    "current transaction is aborted, commands ignored until end of transaction block",
                )),
            };
        }

        Ok(match asked {
            Command::Select => {
                StatementResult::Rows(self.select(client, translate(statement)).await?)
            }
            Command::Begin => StatementResult::Done(Response::TransactionStart(Tag::new("BEGIN"))),
            Command::Commit => StatementResult::Done(Response::TransactionEnd(Tag::new("COMMIT"))),
            Command::Rollback => {
                StatementResult::Done(Response::TransactionEnd(Tag::new("ROLLBACK")))
            }
            Command::Accepted(tag) => StatementResult::Done(Response::Execution(Tag::new(tag))),
            Command::Set { name, value } => {
                let mut settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
                match value {
                    Some(value) => drop(settings.insert(name, value)),
                    None => drop(settings.remove(&name)),
                }
                StatementResult::Done(Response::Execution(Tag::new("SET")))
            }
            Command::Show(name) => {
                let value = self.setting(&name).ok_or_else(|| {
                    error(
                        "42704",
                        &format!("unrecognized configuration parameter \"{name}\""),
                    )
                })?;
                StatementResult::Text(name, value)
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

    /// Returns the limits, with the client's timeout if that is shorter.
    fn limits(&self) -> Limits {
        let timeout = self
            .setting("statement_timeout")
            .and_then(|text| milliseconds(&text))
            .map_or(self.limits.timeout, |n| {
                // A client may shorten its time but not extend the administrator's.
                Duration::from_millis(n).min(self.limits.timeout)
            });
        Limits {
            timeout,
            ..self.limits
        }
    }

    /// Runs a query. DuckDB blocks, so it runs on its own thread; it is interrupted when the client
    /// disconnects.
    async fn select<C>(&self, client: &C, sql: String) -> PgWireResult<ResultSet>
    where
        C: ClientInfo,
    {
        let limits = self.limits();
        let cancel = Cancel::default();
        // Dropped with this future when the client leaves or cancels.
        let _guard = CancelOnDrop(cancel.clone());
        let answer = self
            .ask(client, move |asker, database| {
                asker.select(database, &sql, limits, &cancel)
            })
            .await?
            .map_err(|failure| sql_error(&failure))?;

        // The protocol has no word for "cut off", and a client would take the part for the whole.
        if answer.truncated() {
            Err(error(
                "54000",
                &format!(
                    "the answer has more than {} rows (sql.max_rows); LIMIT or aggregate it",
                    limits.max_rows
                ),
            ))
        } else {
            Ok(answer)
        }
    }

    /// Asks a question on a blocking thread.
    async fn ask<C, T>(
        &self,
        client: &C,
        question: impl FnOnce(&mut SqlClient, &Database) -> Result<T, SqlError> + Send + 'static,
    ) -> PgWireResult<Result<T, SqlError>>
    where
        C: ClientInfo,
        T: Send + 'static,
    {
        let user = user_of(client);
        let account = self.account(client);
        let database = Arc::clone(&self.database);
        let sql = Arc::clone(&self.sql);
        let is_admin = self.is_admin;
        let running = takt_store::spawn_blocking(move || {
            let mut sql = sql.lock().unwrap_or_else(PoisonError::into_inner);
            question(
                sql.get_or_insert_with(|| {
                    SqlClient::postgres(user)
                        .of_admin(is_admin)
                        .charging(account)
                }),
                &database,
            )
        });

        tokio::select! {
            answer = running => answer.map_err(|error| PgWireError::ApiError(Box::new(error))),
            () = self.client_gone() => Ok(Err(SqlError::Cancelled)),
        }
    }

    /// Returns the types of a statement's parameters: from the client, else from their positions,
    /// else text. An invalid statement fails later, when its columns are requested.
    async fn parameter_types<C>(
        &self,
        client: &C,
        statement: &[Token<'_>],
        named: &[Option<Type>],
    ) -> PgWireResult<Vec<Type>>
    where
        C: ClientInfo,
    {
        let count = count(statement).max(named.len());
        let named = |at: usize| named.get(at).cloned().flatten();
        let items = ItemStatement::of(statement);
        // The query process is asked only if the client left a type open.
        let found = if (0..count).all(|at| named(at).is_some()) {
            HashMap::new()
        } else {
            let sql = translate(&items.tokens);
            let limits = self.limits();
            self.ask(client, move |asker, database| {
                asker.parameter_types(database, &sql, limits)
            })
            .await?
            .unwrap_or_default()
        };
        let found = |at: usize| {
            let kind = reported_type(found.get(&(at + 1)).map(String::as_str));
            if kind == Type::TEXT && items.arrays.contains(&(at + 1)) {
                Type::TEXT_ARRAY
            } else {
                kind
            }
        };
        Ok((0..count)
            .map(|at| named(at).unwrap_or_else(|| found(at)))
            .collect())
    }

    /// Waits until the client closes the connection.
    async fn client_gone(&self) {
        loop {
            match self.peer.peek(&mut [0]).await {
                Ok(0) | Err(_) => return,
                // The next message of a pipeline: peeking would return at once again.
                Ok(_) => time::sleep(LOOK_INTERVAL).await,
            }
        }
    }

    /// Runs a prepared statement with its parameters.
    async fn run_prepared<C>(
        &self,
        client: &C,
        portal: &Portal<PreparedStatement>,
    ) -> PgWireResult<StatementResult>
    where
        C: ClientInfo,
    {
        let PreparedStatement {
            text,
            reported_types,
            ..
        } = &portal.statement.statement;
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
                // A text without a type is an untyped literal. It fits better than a guessed type.
                let reported = reported_types
                    .get()
                    .filter(|_| binary)
                    .and_then(|types| types.get(at));
                Parameter {
                    bytes: bytes.as_deref(),
                    binary,
                    kind: named.or(reported),
                }
            })
            .collect();
        let lengths = parameters
            .iter()
            .filter_map(|one| one.bytes.map(<[u8]>::len));
        // Binary parameters become longer as text.
        let bytes = LITERAL_GROWTH * lengths.sum::<usize>();
        let _literals = self.hold(client, bytes).await?;
        // Held to the end of this function, as long as the texts exist.
        let _tokens = self.hold_tokens(client, text, TRANSLATIONS).await?;
        let literals =
            literals(&parameters).map_err(|problem| error("22P02", &problem.to_string()))?;

        let Some(statement) = statements(text).pop() else {
            return Ok(StatementResult::Done(Response::EmptyQuery));
        };
        let bound =
            bind(&statement, &literals).map_err(|problem| error("08P01", &problem.to_string()))?;
        self.run(client, &bound).await
    }
}

/// Returns the format of a column; the default is text.
fn format_of(format: &Format, at: usize) -> FieldFormat {
    match format {
        Format::UnifiedText => FieldFormat::Text,
        Format::UnifiedBinary => FieldFormat::Binary,
        Format::Individual(codes) => codes
            .get(at)
            .map_or(FieldFormat::Text, |&code| FieldFormat::from(code)),
    }
}

fn response(outcome: StatementResult, format: &Format) -> Response {
    match outcome {
        StatementResult::Rows(answer) => {
            let fields = Arc::new(fields(answer.schema(), |at| format_of(format, at)));
            let schema = Arc::clone(&fields);
            let (batches, memory) = answer.into_batches();
            // Lazily: rows encoded all at once would be a second copy of the result.
            let rows = batches.into_iter().flat_map(move |batch| {
                let fields = Arc::clone(&fields);
                // Held while there are rows to send.
                let _ = &memory;
                (0..batch.num_rows()).map(move |at| Ok(row(&batch, at, &fields)))
            });
            Response::Query(QueryResponse::new(schema, stream::iter(rows)))
        }
        StatementResult::Text(name, value) => {
            let field = FieldInfo::new(name, None, None, Type::TEXT, FieldFormat::Text);
            let fields = Arc::new(vec![field]);
            let mut encoder = pgwire::api::results::DataRowEncoder::new(Arc::clone(&fields));
            let row = encoder.encode_field(&value).map(|()| encoder.take_row());
            Response::Query(QueryResponse::new(fields, stream::iter([row])))
        }
        StatementResult::Done(response) => response,
    }
}

/// Name that the client gave.
fn user_of<C>(client: &C) -> String
where
    C: ClientInfo,
{
    let user = client.metadata().get(METADATA_USER);
    user.cloned().unwrap_or_default()
}

fn memory_error(refusal: MemoryRefusal) -> PgWireError {
    error("53200", &refusal.to_string())
}

fn error(code: &str, message: &str) -> PgWireError {
    PgWireError::UserError(Box::new(ErrorInfo::new(
        "ERROR".to_owned(),
        code.to_owned(),
        message.to_owned(),
    )))
}

/// Returns when another connection cancels the statement that runs now.
async fn cancellation<C>(client: &C) -> impl Future<Output = ()> + use<C>
where
    C: ClientInfo,
{
    let handle = client.session_extensions().get::<Arc<ConnectionHandle>>();
    let asked = match handle {
        Some(handle) => Some(handle.start_query().await),
        None => None,
    };
    async move {
        let is_asked = match asked {
            Some(asked) => asked.await.is_ok(),
            None => false,
        };
        // The end of the handle is no request to cancel.
        if !is_asked {
            pending::<()>().await;
        }
    }
}

/// Sends a response. Returns the state of the transaction after it.
async fn send<C>(
    // A failed transaction stays so until its end.
    client: &mut C,
    response: Response,
    status: TransactionStatus,
) -> PgWireResult<TransactionStatus>
where
    C: Sink<PgWireBackendMessage> + Unpin + Send,
    C::Error: Debug,
    PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
{
    match response {
        Response::Query(rows) => send_query_response(client, rows, true).await?,
        Response::Execution(tag) => send_execution_response(client, tag).await?,
        Response::TransactionStart(tag) => {
            send_execution_response(client, tag).await?;
            return Ok(status.to_in_transaction_state());
        }
        Response::TransactionEnd(tag) => {
            send_execution_response(client, tag).await?;
            return Ok(status.to_idle_state());
        }
        Response::Error(info) => {
            client
                .feed(PgWireBackendMessage::ErrorResponse((*info).into()))
                .await?;
            return Ok(status.to_error_state());
        }
        _ => {}
    }
    Ok(status)
}

/// Returns PostgreSQL's error code. Clients use it to decide whether to retry.
fn sql_error(failure: &SqlError) -> PgWireError {
    let message = failure.to_string();
    let code = match failure {
        SqlError::Refused(_) => "42501",
        SqlError::Timeout(_) | SqlError::Cancelled => "57014",
        SqlError::Memory | SqlError::ProcessEnded | SqlError::NoMemory(_) => "53200",
        SqlError::Unavailable(_) => "57P03",
        SqlError::TooLarge => "54000",
        SqlError::Store(_) => "58000",
        // DuckDB's errors have no codes; the words before the colon are their classes.
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
    /// Runs the statements of a message one after the other, each when the rows of the one before are
    /// sent. The library would first collect the rows of all.
    async fn on_query<C>(&self, client: &mut C, query: Query) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        if !matches!(client.state(), PgWireConnectionState::ReadyForQuery) {
            return Err(PgWireError::NotReadyForQuery);
        }
        let text = query.query;
        let _tokens = self.hold_tokens(client, &text, TRANSLATIONS).await?;
        client.set_state(PgWireConnectionState::QueryInProgress);
        let mut status = client.transaction_status();

        let statements = statements(&text);
        if statements.is_empty() {
            let empty = PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new());
            client.feed(empty).await?;
        }
        for statement in statements {
            let text: String = statement.iter().map(|token| token.text).collect();
            let cancelled = cancellation(client).await;
            let responses = tokio::select! {
                responses = SimpleQueryHandler::do_query(self, client, &text) => responses?,
                () = cancelled => return Err(PgWireError::QueryCanceled),
            };
            let mut is_failed = false;
            for response in responses {
                is_failed |= matches!(response, Response::Error(_));
                status = send(client, response, status).await?;
            }
            // As in PostgreSQL, an error ends the message: later statements may depend on the
            // failed one.
            if is_failed {
                break;
            }
        }

        client.set_state(PgWireConnectionState::ReadyForQuery);
        client.set_transaction_status(status);
        send_ready_for_query(client, status).await
    }

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
                // Earlier statements are answered; later ones are skipped.
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

/// Keeps the text of a statement, because DuckDB needs it with its parameters.
pub struct AsItIs(Sessions);

#[async_trait]
impl QueryParser for AsItIs {
    type Statement = PreparedStatement;

    async fn parse_sql<C>(
        &self,
        client: &C,
        sql: &str,
        _: &[Option<Type>],
    ) -> PgWireResult<Option<PreparedStatement>>
    where
        C: ClientInfo + Unpin + Send + Sync,
    {
        // The tokens are counted and dropped; each execution makes them again, so that a portal
        // holds its text only.
        let tokens = self.0.hold_tokens(client, sql, 0).await?;
        let count = statements(sql).len();
        drop(tokens);
        match count {
            0 => Ok(None),
            1 => {
                let memory = self.0.hold(client, PREPARED_BYTES + sql.len()).await?;
                Ok(Some(PreparedStatement {
                    text: sql.into(),
                    reported_types: Arc::default(),
                    _memory: vec![Arc::new(memory)],
                }))
            }
            _ => Err(error(
                "42601",
                "cannot insert multiple commands into a prepared statement",
            )),
        }
    }

    fn get_parameter_types(&self, statement: &PreparedStatement) -> PgWireResult<Vec<Type>> {
        let names = statements(&statement.text)
            .first()
            .map_or(0, |tokens| count(tokens));
        Ok(vec![Type::TEXT; names])
    }

    fn get_result_schema(
        &self,
        _: &PreparedStatement,
        _: Option<&Format>,
    ) -> PgWireResult<Vec<FieldInfo>> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl ExtendedQueryHandler for Sessions {
    type Statement = PreparedStatement;
    type QueryParser = AsItIs;

    fn query_parser(&self) -> Arc<AsItIs> {
        Arc::new(AsItIs(self.clone()))
    }

    /// As the library does, and holds memory for the parameters as long as the portal exists.
    async fn on_bind<C>(&self, client: &mut C, message: Bind) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let name = message.statement_name.as_deref().unwrap_or(DEFAULT_NAME);
        let portal = message.portal_name.as_deref().unwrap_or(DEFAULT_NAME);
        match client.portal_store().get_statement(name) {
            Some(Entry::Value(statement)) => {
                let given = message.parameters.iter().flatten();
                let bytes: usize = given.map(|value| value.len()).sum();
                let slots = message.parameters.len() * size_of::<Option<Bytes>>();
                let memory = self
                    .hold(client, PREPARED_BYTES + bytes + slots + portal.len())
                    .await?;
                let mut bound = statement.statement.clone();
                bound._memory.push(Arc::new(memory));
                let types = statement.parameter_types.clone();
                let bound = StoredStatement::new(statement.id.clone(), bound, types);
                let portal = Portal::try_new(&message, Arc::new(bound))?;
                client.portal_store().put_portal(Arc::new(portal));
            }
            Some(Entry::Empty) if message.parameters.is_empty() => {
                client.portal_store().put_empty_portal(portal);
            }
            Some(Entry::Empty) => {
                return Err(error("08P01", "an empty statement has no parameters"));
            }
            None => return Err(PgWireError::StatementNotFound(name.to_owned())),
        }
        let complete = PgWireBackendMessage::BindComplete(BindComplete::new());
        Ok(client.send(complete).await?)
    }

    /// The library allocates the requested portion at once. So a request above the maximum is
    /// changed to a request for all rows.
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
        target: &StoredStatement<PreparedStatement>,
    ) -> PgWireResult<DescribeStatementResponse>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let _tokens = self
            .hold_tokens(client, &target.statement.text, TRANSLATIONS)
            .await?;

        let Some(statement) = statements(&target.statement.text).pop() else {
            return Ok(DescribeStatementResponse::new(Vec::new(), Vec::new()));
        };
        let reported_types = self
            .parameter_types(client, &statement, &target.parameter_types)
            .await?;
        // The first answer stays: the client encodes its values for these types.
        let reported_types = target
            .statement
            .reported_types
            .get_or_init(|| reported_types)
            .clone();

        if command(&statement) != Command::Select {
            let rows = match self.run(client, &statement).await? {
                StatementResult::Text(name, _) => vec![FieldInfo::new(
                    name,
                    None,
                    None,
                    Type::TEXT,
                    FieldFormat::Text,
                )],
                _ => Vec::new(),
            };
            return Ok(DescribeStatementResponse::new(reported_types, rows));
        }

        // With NULL for each parameter and no rows, the statement has its final columns.
        let described = |text: &str| -> PgWireResult<String> {
            let nulls: Vec<String> = reported_types
                .iter()
                .map(|kind| {
                    if *kind == Type::TEXT {
                        text.to_owned()
                    } else {
                        null(kind)
                    }
                })
                .collect();
            let bound =
                bind(&statement, &nulls).map_err(|problem| error("08P01", &problem.to_string()))?;
            // The line feed ends a comment in the last line of the statement.
            Ok(format!("SELECT * FROM ({}\n) LIMIT 0", translate(&bound)))
        };

        let answer = match self.select(client, described("NULL::VARCHAR")?).await {
            // An untyped NULL also fits where a VARCHAR does not.
            Err(_) if reported_types.contains(&Type::TEXT) => {
                self.select(client, described("NULL")?).await?
            }
            answer => answer?,
        };
        Ok(DescribeStatementResponse::new(
            reported_types,
            fields(answer.schema(), |_| FieldFormat::Text),
        ))
    }

    /// Runs the query now, because only then are the columns known. The rows wait for `Execute`.
    async fn do_describe_portal<C>(
        &self,
        client: &mut C,
        target: &Portal<PreparedStatement>,
    ) -> PgWireResult<DescribePortalResponse>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let text = &target.statement.statement.text;
        let tokens = self.hold_tokens(client, text, TRANSLATIONS).await?;
        let statement = statements(text).pop().unwrap_or_default();
        let has_rows = matches!(command(&statement), Command::Select | Command::Show(_));
        drop((statement, tokens));
        if !has_rows {
            return Ok(DescribePortalResponse::new(Vec::new()));
        }

        let cancelled = cancellation(client).await;
        let outcome = tokio::select! {
            outcome = self.run_prepared(client, target) => outcome?,
            () = cancelled => return Err(PgWireError::QueryCanceled),
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
        portal: &Portal<PreparedStatement>,
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
