//! Questions and their answers. Commands, the HTTP API, pages and mails ask the same typed questions.
//!
//! To add a question, write its file, with its type, its answer and the trait [`Question`], and add a line to
//! [`for_each_question`]. The HTTP route and the command's way to the server follow from the trait.

mod about;
mod alerts;
pub mod assess;
mod assess_runs;
mod audit;
mod budgets;
mod calendar;
mod capacity;
mod card;
mod card_facts;
mod card_note;
mod card_watch;
mod cards;
mod cluster;
mod compare;
mod config;
mod credit;
mod credits;
mod delete_records;
mod delete_samples;
mod doctor;
mod energy;
mod error;
mod events;
mod fairshare;
mod fairshare_plan;
mod forecast;
mod gpu;
mod history;
pub mod http_access;
mod http_thread;
mod import;
mod imports;
mod job;
mod jobs;
mod kept;
mod lake;
mod listed_run;
pub mod listing;
mod near;
mod note_sent_report;
pub mod password;
mod period;
mod query_config;
pub mod query_memory;
mod queue;
mod remote_engine;
mod run_strips;
mod seal_samples;
mod search;
mod sent_reports;
mod sheets;
mod snapshot;
mod sources;
pub mod sparkline;
mod sql;
mod store_stat;
mod store_verify;
mod strips;
#[cfg(test)]
mod testing;
mod tokens;
mod undo_import;
mod usage;
mod view;
mod view_servers;
mod visible;
mod waste;
mod whatif;
mod whoami;

pub use about::{AboutAnswer, AboutQuestion, about};
pub use alerts::{
    AcknowledgeByLink, ActiveAlert, AlertDesk, AlertOrder, AlertsAnswer, AlertsQuestion,
    EndedAlertView, EndedAlertsQuestion, LinkState, LinkedAlert, LinkedAlerts,
    LinkedAlertsQuestion, RuleLine, RulesQuestion, ShownSilence,
};
pub use assess_runs::AssessQuestion;
pub use audit::AuditQuestion;
pub use budgets::budgets_now;
pub use calendar::{note_budgets, note_calendar};
pub use capacity::{CapacityAnswer, CapacityDay, CapacityQuestion, Charge};
pub use card::{CardAnswer, CardQuestion, CardReadingLine, CardReport};
pub use card_note::CardNoteOrder;
pub use card_watch::CardWatch;
pub use cards::{CardLine, CardsQuestion};
pub use cluster::{
    ClusterAnswer, ClusterQuestion, GpuCounts, GpuHolder, GpuNow, GpuState, Holder, IdleHolder,
    NodeNow, gpus_now,
};
pub use compare::{CompareAnswer, CompareQuestion, CompareRow, CompareValue};
pub use config::{AccountingConfig, AnswerConfig, LakeSettings};
pub use credit::CreditOrder;
pub use credits::CreditsQuestion;
pub use delete_records::DeleteRecordsQuestion;
pub use delete_samples::DeleteQuestion;
pub use doctor::{Diagnosis, Doctor, DoctorQuestion, Finding, Severity};
pub use energy::{EnergyAnswer, EnergyQuestion};
pub use error::AnswerError;
pub use events::{ClusterEvent, EVENT_KINDS, EventsQuestion};
pub use fairshare::{FairshareAnswer, FairshareQuestion, note_fairshare};
pub use forecast::{
    AwaitedRun, BlockedAnswer, BlockedQuestion, ForecastGrades, ForecastState, QueueFacts,
    StartChange, StartForecast, UnmodelledRule, WaitingJob, forecast_queue, forecast_starts,
    run_times,
};
pub use gpu::{GpuAnswer, GpuHeld, GpuQuestion, GpuReading};
pub use history::{HistoryAnswer, HistoryCurve, HistoryQuestion};
pub use import::{
    CountingReader, IMPORT_PATH, ImportFormat, ImportQuestion, import, prepare_import,
};
pub use imports::ImportsQuestion;
pub use job::{
    ArrayReport, GpuReport, JobAnswer, JobHint, JobPhase, JobQuestion, JobReport, NodeReport,
    PaceReport, SlowJob, StateCount, slow_jobs_now,
};
pub(crate) use job::{kept_axis, kept_curves};
pub use jobs::{JobsQuestion, STATES};
pub use kept::KeptAnswers;
pub use lake::{LakeInitQuestion, LakeStatusQuestion, LakeVerifyQuestion};
pub use listed_run::{ListedRun, RunUse, WhyWaiting, requested};
pub use near::did_you_mean;
pub use note_sent_report::NoteSentReport;
pub use password::{PasswordAnswer, PasswordOrder};
pub use period::LOCAL_CLUSTER;
pub use query_config::QueryConfig;
pub use queue::{QueueAnswer, QueueQuestion, QueuedRun, ReasonCount, RunningRun};
pub use remote_engine::remote_engine;
pub use run_strips::{RunStripAnswer, RunStripsQuestion};
pub use seal_samples::SealQuestion;
pub use search::{HitKind, SearchAnswer, SearchHit, SearchQuestion};
pub use sent_reports::{SentQuestion, sent_reports};
pub use sheets::{SheetQuestion, sheets};
pub use snapshot::SnapshotQuestion;
pub use sources::{SourceState, SourcesQuestion, source_warnings};
pub use sql::SqlQuestion;
pub use store_stat::StatQuestion;
pub use store_verify::VerifyQuestion;
pub use strips::{StripRow, StripStep, StripsAnswer, StripsQuestion};
pub use takt_alerts::notify::severity_rank;
pub use takt_diagnosis::card::{
    CardDiagnosis, CardEvidence, CardFault, CardFinding, CardVerdict, CauseState, FaultKind,
    FaultOrigin, KilledJob, OriginReport, RuledCause,
};
pub use takt_simulate::{WaitDifference, WaitGroup, WaitTrend};
pub use tokens::{TokenAnswer, TokenOrder, TokensQuestion};
pub use undo_import::UndoImportQuestion;
pub use usage::UsageQuestion;
pub use view::{ServerState, ViewAnswer, ViewOf, ViewQuestion};
pub use view_servers::{ViewConfig, ViewServerConfig, ViewServers};
pub use waste::{WasteAnswer, WasteQuestion};
pub use whatif::{UseRow, WhatIfAnswer, WhatIfQuestion};
pub use whoami::{WhoamiAnswer, WhoamiQuestion};

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::Write;
use std::ops::Deref;
use std::sync::Arc;
use takt_access::{Need, Viewer};
use takt_store::{
    DataDir, Database, MemoryAccount, RemoteEngine, Settings, Store, StoreConfig, StoreError,
};

/// A question that Takt answers from a data directory, in this process or over HTTP.
pub trait Question: Serialize + Send + 'static {
    /// Path in the HTTP API.
    const PATH: &'static str;
    /// Form of the HTTP request.
    const REQUEST: RequestForm = RequestForm::Get;
    /// Permission that the question needs over HTTP.
    const NEED: Need;
    /// The answer.
    type Answer: DeserializeOwned + Send + 'static;
    /// Part of the data directory that the answer is read from.
    type Data: AnswerData;

    /// Answers the question, as of now, with the data that `viewer` may see.
    ///
    /// # Errors
    /// When the question is wrong, its content is unusable, or the store fails.
    fn answer(
        &self,
        viewer: &Viewer,
        data: &Self::Data,
        config: &AnswerConfig,
    ) -> Result<Self::Answer, AnswerError>;

    /// Answers the question, and writes the answer as JSON. `memory` is the account of the request, which `out` charges, too.
    ///
    /// # Errors
    /// As [`answer`](Self::answer), and when `out` fails.
    fn write_answer(
        &self,
        viewer: &Viewer,
        data: &Self::Data,
        config: &AnswerConfig,
        _memory: &MemoryAccount,
        out: &mut dyn Write,
    ) -> Result<(), AnswerError>
    where
        Self::Answer: Serialize,
    {
        write_json(&self.answer(viewer, data, config)?, out)
    }

    /// Stores configuration that the answer depends on. A server has stored it at its start; a command that opens the
    /// files calls this first.
    ///
    /// # Errors
    /// When the question is wrong or the store fails.
    fn prepare(&self, _data: &Self::Data, _config: &AnswerConfig) -> Result<(), AnswerError> {
        Ok(())
    }

    /// Path of this question, where the path depends on its parameters.
    fn path(&self) -> &'static str {
        Self::PATH
    }
}

/// Form of the HTTP request that carries a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestForm {
    /// GET; the question is the query string.
    Get,
    /// POST; the question is the query string.
    PostQuery,
    /// POST; the question is the body, as a form.
    PostForm,
    /// POST; the question is the body, as JSON.
    PostJson,
    /// POST; the question is one string, the body.
    PostText,
}

/// Part of a data directory that questions read.
pub trait AnswerData: Send + Sync + Sized + 'static {
    /// The part, opened by a command; holds the directory's lock.
    type Opened: Deref<Target = Self>;

    /// Opens the part. Samples are read from `remote`, if it is given.
    ///
    /// # Errors
    /// When the files cannot be opened.
    fn open(
        dir: DataDir,
        config: &StoreConfig,
        remote: Option<Arc<dyn RemoteEngine>>,
    ) -> Result<Self::Opened, StoreError>;

    /// The part of a running server's store.
    fn of(store: &Store) -> &Self;

    /// The records and blocks, which every part has.
    fn database(&self) -> &Database;
}

/// The files alone: quick to open.
impl AnswerData for Database {
    type Opened = OpenedDatabase;

    fn open(
        dir: DataDir,
        _config: &StoreConfig,
        _remote: Option<Arc<dyn RemoteEngine>>,
    ) -> Result<OpenedDatabase, StoreError> {
        let database = Database::open(&dir, &Settings::default())?;
        Ok(OpenedDatabase {
            database,
            _dir: dir,
        })
    }

    fn of(store: &Store) -> &Self {
        store.database()
    }

    fn database(&self) -> &Database {
        self
    }
}

/// The files, and the series of the last minutes in memory.
impl AnswerData for Store {
    type Opened = Box<Store>;

    fn open(
        dir: DataDir,
        config: &StoreConfig,
        remote: Option<Arc<dyn RemoteEngine>>,
    ) -> Result<Box<Store>, StoreError> {
        let mut registry = prometheus_client::registry::Registry::default();
        let store = Store::open(dir, config, &mut registry)?;
        if let Some(engine) = remote {
            store.read_from(engine);
        }
        Ok(Box::new(store))
    }

    fn of(store: &Store) -> &Self {
        store
    }

    fn database(&self) -> &Database {
        Store::database(self)
    }
}

/// A database and the lock on its directory.
#[derive(Debug)]
pub struct OpenedDatabase {
    // Closed before the lock is released: fields are dropped in this order.
    database: Database,
    _dir: DataDir,
}

impl Deref for OpenedDatabase {
    type Target = Database;

    fn deref(&self) -> &Database {
        &self.database
    }
}

/// A question whose type a server can read from a request, and whose answer it can write.
pub trait ServedQuestion: Question<Answer: Serialize> + DeserializeOwned {}

impl<Q> ServedQuestion for Q where Q: Question<Answer: Serialize> + DeserializeOwned {}

/// Writes an answer as JSON.
///
/// # Errors
/// When `out` fails.
pub(crate) fn write_json(answer: &impl Serialize, out: &mut dyn Write) -> Result<(), AnswerError> {
    serde_json::to_writer(out, answer).map_err(AnswerError::failed)
}

/// An action on the type of each question.
pub trait QuestionVisitor {
    /// Called once per question.
    fn question<Q: ServedQuestion>(&mut self);
}

/// Calls `visitor` for every question of Takt's HTTP API.
///
/// Two more have routes of their own: PromQL queries, in Prometheus' format, and imports, whose body is a stream.
pub fn for_each_question(visitor: &mut impl QuestionVisitor) {
    visitor.question::<AboutQuestion>();
    visitor.question::<UsageQuestion>();
    visitor.question::<CapacityQuestion>();
    visitor.question::<FairshareQuestion>();
    visitor.question::<JobsQuestion>();
    visitor.question::<RunStripsQuestion>();
    visitor.question::<JobQuestion>();
    visitor.question::<BlockedQuestion>();
    visitor.question::<CompareQuestion>();
    visitor.question::<QueueQuestion>();
    visitor.question::<WasteQuestion>();
    visitor.question::<WhatIfQuestion>();
    visitor.question::<EnergyQuestion>();
    visitor.question::<SearchQuestion>();
    visitor.question::<ViewQuestion>();
    visitor.question::<DeleteRecordsQuestion>();
    visitor.question::<ImportsQuestion>();
    visitor.question::<UndoImportQuestion>();
    visitor.question::<SheetQuestion>();
    visitor.question::<SentQuestion>();
    visitor.question::<NoteSentReport>();
    visitor.question::<CreditsQuestion>();
    visitor.question::<CreditOrder>();
    visitor.question::<AssessQuestion>();
    visitor.question::<SqlQuestion>();
    visitor.question::<StatQuestion>();
    visitor.question::<VerifyQuestion>();
    visitor.question::<SealQuestion>();
    visitor.question::<DeleteQuestion>();
    visitor.question::<SnapshotQuestion>();
    visitor.question::<LakeInitQuestion>();
    visitor.question::<LakeStatusQuestion>();
    visitor.question::<LakeVerifyQuestion>();
    visitor.question::<DoctorQuestion>();
    visitor.question::<SourcesQuestion>();
    visitor.question::<ClusterQuestion>();
    visitor.question::<StripsQuestion>();
    visitor.question::<EventsQuestion>();
    visitor.question::<AlertsQuestion>();
    visitor.question::<AlertOrder>();
    visitor.question::<EndedAlertsQuestion>();
    visitor.question::<RulesQuestion>();
    visitor.question::<GpuQuestion>();
    visitor.question::<CardsQuestion>();
    visitor.question::<CardQuestion>();
    visitor.question::<CardNoteOrder>();
    visitor.question::<HistoryQuestion>();
    visitor.question::<WhoamiQuestion>();
    visitor.question::<TokensQuestion>();
    visitor.question::<TokenOrder>();
    visitor.question::<PasswordOrder>();
    visitor.question::<AuditQuestion>();
}
