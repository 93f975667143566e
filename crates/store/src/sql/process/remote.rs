//! Unsealed samples in a statement's process: the table function `takt_unsealed`, which asks the server.

use super::wire::{self, Message};
use crate::unsealed::{Arguments, CHUNK, FUNCTION, declare, fill, parameters};
use crate::{Sample, StoreError};
use duckdb::Connection;
use duckdb::core::{DataChunkHandle, LogicalTypeHandle};
use duckdb::vtab::{BindInfo, InitInfo, TableFunctionInfo, VTab};
use std::error::Error;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The socket of this process's statement.
static SERVER: OnceLock<Mutex<UnixStream>> = OnceLock::new();

/// Number of the next scan.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Registers the function in a database.
pub(super) fn register(db: &Connection) -> Result<(), StoreError> {
    db.register_table_function::<Function>(FUNCTION)
        .map_err(StoreError::sql("register a table function"))
}

/// Sets the socket of this process's statement. Called once.
pub(super) fn connect(server: UnixStream) {
    SERVER.get_or_init(|| Mutex::new(server));
}

/// Asks for samples, and waits for them.
fn ask(message: &Message) -> io::Result<Vec<(u32, Sample)>> {
    let server = SERVER.get().ok_or(io::ErrorKind::NotConnected)?;
    let server = server.lock().unwrap_or_else(PoisonError::into_inner);
    wire::write(&*server, message)?;
    wire::read_samples(&*server)
}

struct Function;

/// A scan, and the rows of it that DuckDB does not have yet.
struct Scan(Mutex<ScanState>);

struct ScanState {
    scan: u32,
    rows: Vec<(u32, Sample)>,
    taken: usize,
}

impl VTab for Function {
    type InitData = Scan;
    type BindData = Arguments;

    fn bind(bind: &BindInfo) -> Result<Arguments, Box<dyn Error>> {
        Ok(declare(bind))
    }

    fn init(init: &InitInfo) -> Result<Scan, Box<dyn Error>> {
        init.set_max_threads(1);
        // SAFETY: DuckDB passes the value that `bind` returned.
        let arguments = unsafe { &*init.get_bind_data::<Arguments>() }.clone();
        let scan = NEXT.fetch_add(1, Ordering::Relaxed);
        let rows = ask(&Message::Scan { scan, arguments })?;
        let taken = 0;
        Ok(Scan(Mutex::new(ScanState { scan, rows, taken })))
    }

    fn func(
        function: &TableFunctionInfo<Self>,
        output: &mut DataChunkHandle,
    ) -> Result<(), Box<dyn Error>> {
        let scan = function.get_init_data();
        let mut state = scan.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.taken == state.rows.len() && !state.rows.is_empty() {
            state.rows = ask(&Message::More { scan: state.scan })?;
            state.taken = 0;
        }
        let end = (state.taken + CHUNK).min(state.rows.len());
        fill(output, &state.rows[state.taken..end]);
        state.taken = end;
        Ok(())
    }

    fn parameters() -> Option<Vec<LogicalTypeHandle>> {
        Some(parameters())
    }
}
