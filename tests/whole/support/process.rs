//! Programs that run beside a test, and HTTP requests to them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, kill_process, kill_process_group, set_parent_process_death_signal,
};
use std::env;

/// Time that a daemon has to end after SIGTERM. A busy machine needs some of it.
const STOP_TIMEOUT: Duration = Duration::from_secs(90);

/// Shortest limit of a wait: on a machine that runs other tests, too, a shorter one proves nothing.
const LEAST_WAIT: Duration = Duration::from_secs(120);

/// A program in the background. Dropping this value ends it; it never outlives the test program.
pub struct Daemon {
    name: String,
    child: Child,
    log: PathBuf,
    ended: bool,
}

impl Daemon {
    /// Starts `command` in a process group of its own, with all its output in the file `log`.
    pub fn start(name: &str, mut command: Command, log: &Path) -> Self {
        // Appended, as a test may start a program again and look into one log.
        let file = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .unwrap();
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .process_group(0);
        let child = spawn(command).unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        Self {
            name: name.to_owned(),
            child,
            log: log.to_owned(),
            ended: false,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Process ids of all processes that this one and its children started.
    pub fn descendants(&self) -> Vec<u32> {
        let mut found = vec![self.pid()];
        let mut at = 0;
        while at < found.len() {
            found.extend(children_of(found[at]));
            at += 1;
        }
        found.split_off(1)
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns the number of busy cores, measured over half a second.
    pub fn load(&self) -> f64 {
        let ticks = || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();

            // User and system time are the 14th and 15th field; the second, the name, may contain
            // spaces.
            stat.rsplit(')')
                .next()
                .unwrap()
                .split_whitespace()
                .skip(11)
                .take(2)
                .map(|field| field.parse::<f64>().unwrap())
                .sum::<f64>()
        };
        // Half a second is 50 ticks of the kernel's clock, which is enough to tell idle from busy.
        let before = ticks();
        let began = Instant::now();
        thread::sleep(Duration::from_millis(500));
        (ticks() - before) / 100.0 / began.elapsed().as_secs_f64()
    }

    /// Returns its output so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Waits until `ready` returns a value. Fails with the end of the log when the program has
    /// ended or after the limit, which is two minutes at least.
    pub fn wait_until<T>(
        &mut self,
        what: &str,
        limit: Duration,
        mut ready: impl FnMut() -> Option<T>,
    ) -> T {
        let limit = limit.max(LEAST_WAIT);
        let deadline = Instant::now() + limit;
        loop {
            if let Some(result) = ready() {
                return result;
            }
            // A program that has ended is never ready, so the limit is not waited for.
            assert!(
                self.is_running(),
                "{} ended before it was {what}:\n{}",
                self.name,
                tail(&self.log())
            );
            assert!(
                Instant::now() < deadline,
                "{} is not {what} after {limit:?}:\n{}",
                self.name,
                tail(&self.log())
            );
            thread::sleep(Duration::from_millis(25));
        }
    }

    /// Sends SIGTERM and waits for the end; kills the program after the limit.
    pub fn stop(&mut self) -> ExitStatus {
        if self.is_running() {
            // To the program alone: its children are its own affair in an orderly end.
            let _ = kill_process(self.group(), Signal::TERM);
            let deadline = Instant::now() + STOP_TIMEOUT;
            while self.is_running() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(10));
            }
        }
        self.kill()
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) -> ExitStatus {
        // The whole group, with processes that the program has started. The group's id is not
        // reused until the child is reaped.
        if !self.ended {
            let _ = kill_process_group(self.group(), Signal::KILL);
            self.ended = true;
        }
        self.child.wait().unwrap()
    }

    fn group(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop();
    }
}

fn children_of(pid: u32) -> Vec<u32> {
    let lists: String = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|task| task.path().join("children"))
        .filter_map(|list| fs::read_to_string(list).ok())
        .collect();
    lists
        .split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}

/// Waits until `ready` returns a value; fails after `limit`, which is two minutes at least.
pub fn wait_for<T>(what: &str, limit: Duration, mut ready: impl FnMut() -> Option<T>) -> T {
    let limit = limit.max(LEAST_WAIT);
    let deadline = Instant::now() + limit;
    loop {
        if let Some(result) = ready() {
            return result;
        }
        assert!(Instant::now() < deadline, "no {what} within {limit:?}");
        thread::sleep(Duration::from_millis(25));
    }
}

/// Returns a free port on loopback. No other call returns it, in this test program or in another
/// one that runs at the same time: a locked file stands for each port.
///
/// It lies below the range from which the kernel takes ports for outgoing connections, so it stays
/// free.
pub fn free_port() -> u16 {
    const FIRST: u32 = 20_000;
    const COUNT: u32 = 12_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    /// The locked files of the ports that this program uses.
    static TAKEN: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let user = rustix::process::getuid().as_raw();
    let locks = env::temp_dir().join(format!("takt-test-ports-{user}"));
    fs::create_dir_all(&locks).unwrap();

    // Test programs that run at the same time begin at different places.
    let start = process::id().wrapping_mul(97);
    for _ in 0..COUNT {
        let offset = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = u16::try_from(FIRST + offset).unwrap();
        let Ok(lock) = File::create(locks.join(port.to_string())) else {
            continue;
        };
        // The lock keeps other tests away, the attempt to bind all other programs.
        let is_ours = lock.try_lock().is_ok();
        if is_ours && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
            taken.push(lock);
            return port;
        }
    }
    panic!("no free port on loopback");
}

/// An answer to an HTTP request.
pub struct Page {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

/// Fetches a page. Any status is an answer; an error means that no answer came.
pub fn http_get(url: &str) -> Result<Page, ureq::Error> {
    http_get_with(url, &[], &[])
}

/// Fetches a page with query parameters and headers.
pub fn http_get_with(
    url: &str,
    query: &[(&str, &str)],
    headers: &[(&str, &str)],
) -> Result<Page, ureq::Error> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(60)))
        .build()
        .into();
    let request = agent.get(url).query_pairs(query.iter().copied());
    let request = headers.iter().fold(request, |request, (name, value)| {
        request.header(*name, *value)
    });
    let mut response = request.call()?;
    Ok(Page {
        status: response.status().as_u16(),
        headers: headers_of(&response),
        body: response
            .body_mut()
            .with_config()
            // Pages of large clusters exceed the client's default limit.
            .limit(512 << 20)
            .read_to_string()?,
    })
}

/// Posts a body. Any status is an answer; an error means that no answer came.
pub fn http_post(url: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Page, ureq::Error> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(60)))
        .build()
        .into();
    let request = agent.post(url);
    let request = headers.iter().fold(request, |request, (name, value)| {
        request.header(*name, *value)
    });
    let mut response = request.send(body)?;
    Ok(Page {
        status: response.status().as_u16(),
        headers: headers_of(&response),
        body: response.body_mut().read_to_string()?,
    })
}

/// Headers of an answer; their names are in lower case.
fn headers_of<T>(response: &ureq::http::Response<T>) -> BTreeMap<String, String> {
    response
        .headers()
        .iter()
        .map(|(name, value)| {
            let value = value.to_str().unwrap_or_default();
            (name.to_string(), value.to_owned())
        })
        .collect()
}

/// The last lines of a log.
pub fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

/// Starts a program that the kernel kills when this test program ends for any reason.
///
/// The kernel watches the thread that started the program, and a test's thread ends with its test.
/// So one thread that never ends starts all programs.
fn spawn(mut command: Command) -> io::Result<Child> {
    type Order = (Command, mpsc::Sender<io::Result<Child>>);
    static ORDERS: LazyLock<mpsc::Sender<Order>> = LazyLock::new(|| {
        let (orders, received) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in received {
                let _ = answer.send(command.spawn());
            }
        });
        orders
    });

    // SAFETY: the closure makes one system call, which is allowed between fork and exec.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
    }
    let (answer, answered) = mpsc::channel();
    ORDERS
        .send((command, answer))
        .expect("the thread that starts programs never ends");
    answered
        .recv()
        .expect("the thread that starts programs never ends")
}
