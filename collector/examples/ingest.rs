//! Cost of ingestion: CPU time per sample from the socket to the durable commit.
//!
//! `ingest NODES SECONDS INTERVAL_MS PAGE_0 PAGE_1` scrapes NODES targets. A second process of this
//! program serves them. The two pages are captures of one exporter. The values that differ between
//! them keep changing at that pace, each node at its own offset, so the ratio of changing values is
//! realistic.

#![expect(clippy::print_stdout, reason = "a program that prints its result")]

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use takt_collector::scrape::{ScrapeConfig, ScrapeManager, TargetConfig, TargetFiles};
use takt_store::{DataDir, Store, StoreConfig};

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", page_0, page_1] => serve(page_0, page_1),
        [nodes, seconds, interval_ms, page_0, page_1] => measure(
            nodes.parse()?,
            seconds.parse()?,
            interval_ms.parse()?,
            [page_0, page_1],
        ),
        _ => Err("usage: ingest NODES SECONDS INTERVAL_MS PAGE_0 PAGE_1".into()),
    }
}

fn measure(nodes: usize, seconds: u64, interval_ms: u32, pages: [&str; 2]) -> Result<(), Failure> {
    let mut server = Command::new(std::env::current_exe()?)
        .arg("serve")
        .args(pages)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut address = String::new();
    BufReader::new(server.stdout.take().ok_or("no stdout")?).read_line(&mut address)?;
    let address: SocketAddr = address.trim().parse()?;

    let _ = rustls::crypto::ring::default_provider().install_default();
    let directory = std::env::temp_dir().join(format!("takt-ingest-{}", std::process::id()));
    let mut registry = Registry::default();
    // A small limit for DuckDB, so that its memory at the end is the same for any number of series.
    let config = StoreConfig {
        min_free_bytes: 0,
        duckdb_memory_mib: 256,
        ..StoreConfig::default()
    };
    let store = Arc::new(Store::open(
        DataDir::claim(&directory)?,
        &config,
        &mut registry,
    )?);
    let target = |node: usize| TargetConfig {
        url: format!("http://{address}/{node}"),
        node: format!("node{node:04}"),
        ..TargetConfig::default()
    };
    let interval_seconds = f64::from(interval_ms) / 1e3;
    let scrape = ScrapeConfig {
        interval_seconds,
        timeout_seconds: Some(interval_seconds),
        targets: (0..nodes).map(target).collect(),
        ..ScrapeConfig::default()
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let empty_bytes = resident_bytes()?;
    let manager = {
        let _guard = runtime.enter();
        ScrapeManager::start(
            Arc::clone(&store),
            scrape,
            "bench",
            TargetFiles::default(),
            &mut registry,
        )?
    };
    // The first scrapes create the series. The measurement covers the later ones.
    std::thread::sleep(Duration::from_millis(2 * u64::from(interval_ms) + 2000));
    let (cpu, samples, began) = (cpu_seconds()?, stored_samples(&registry)?, Instant::now());
    std::thread::sleep(Duration::from_secs(seconds));
    let (cpu, samples, wall) = (
        cpu_seconds()? - cpu,
        stored_samples(&registry)? - samples,
        began.elapsed(),
    );
    let series = store.count(&[]);
    println!(
        "{nodes} nodes, {series} series, {samples} samples in {:.1} s: {:.3} µs CPU a sample ({:.1} % of a core); \
         {:.0} bytes resident a series; {} targets failed",
        wall.as_secs_f64(),
        cpu * 1e6 / samples,
        100.0 * cpu / wall.as_secs_f64(),
        (resident_bytes()? - empty_bytes) / series as f64,
        manager
            .targets()
            .iter()
            .filter(|target| target.error.is_some())
            .count(),
    );
    runtime.block_on(manager.shutdown());
    let began = cpu_seconds()?;
    let kept = store.seal()?;
    let sealing = cpu_seconds()? - began;
    let bytes: u64 = store
        .database()
        .stat()?
        .blocks
        .iter()
        .map(|block| block.bytes)
        .sum();
    println!(
        "sealing {} samples: {:.3} µs CPU a sample; {:.2} bytes a sample on disk",
        kept.rows,
        sealing * 1e6 / kept.rows as f64,
        bytes as f64 / kept.rows as f64
    );
    drop((manager, store));
    server.kill()?;
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}

fn stored_samples(registry: &Registry) -> Result<f64, Failure> {
    let mut text = String::new();
    encode(&mut text, registry)?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("takt_store_samples_total "));
    Ok(line.ok_or("no such metric")?.parse()?)
}

/// Returns the user and system time of this process, in seconds.
fn cpu_seconds() -> Result<f64, Failure> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = text
        .rsplit_once(')')
        .ok_or("no command in /proc/self/stat")?
        .1
        .split(' ')
        .collect();
    // utime and stime, in clock ticks; Linux always reports 100 ticks per second.
    Ok((fields[12].parse::<f64>()? + fields[13].parse::<f64>()?) / 100.0)
}

fn resident_bytes() -> Result<f64, Failure> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    Ok(text
        .split(' ')
        .nth(1)
        .ok_or("no second field in /proc/self/statm")?
        .parse::<f64>()?
        * 4096.0)
}

/// A piece of a page: constant text, then a changing number.
struct Piece {
    before: String,
    value: f64,
    step: f64,
}

fn serve(page_0: &str, page_1: &str) -> Result<(), Failure> {
    let (pieces, rest) = pieces(
        &std::fs::read_to_string(page_0)?,
        &std::fs::read_to_string(page_1)?,
    );
    let pieces = Arc::new((pieces, rest));
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    for stream in listener.incoming().flatten() {
        let pieces = Arc::clone(&pieces);
        std::thread::spawn(move || answer(stream, &pieces.0, &pieces.1));
    }
    Ok(())
}

fn pieces(page_0: &str, page_1: &str) -> (Vec<Piece>, String) {
    let (mut pieces, mut before) = (Vec::new(), String::new());
    for (line_0, line_1) in page_0.lines().zip(page_1.lines()) {
        let number = |line: &str| {
            Some(line.rsplit_once(' ')?.1.parse::<f64>().ok()?).filter(|_| !line.starts_with('#'))
        };
        match (number(line_0), number(line_1)) {
            (Some(value), Some(next)) if value != next => {
                before.push_str(line_0.rsplit_once(' ').map_or("", |(series, _)| series));
                before.push(' ');
                pieces.push(Piece {
                    before: std::mem::take(&mut before),
                    value,
                    step: (next - value) / 15.0,
                });
            }
            _ => before.push_str(line_0),
        }
        before.push('\n');
    }
    (pieces, before)
}

/// Answers requests until the connection ends.
fn answer(mut stream: TcpStream, pieces: &[Piece], rest: &str) {
    let (mut buffer, mut page) = ([0; 4096], String::new());
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        let head = String::from_utf8_lossy(&buffer[..length]);
        let node: f64 = head
            .split(['/', ' '])
            .nth(2)
            .and_then(|node| node.parse().ok())
            .unwrap_or_default();
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0.0, |now| now.as_secs_f64() % 1e5);
        page.clear();
        for piece in pieces {
            let is_whole = piece.value.fract() == 0.0;
            let value = piece.value + piece.step * (now + 37.0 * node);
            page.push_str(&piece.before);
            page.push_str(
                &if is_whole {
                    value.round()
                } else {
                    (value * 1e4).round() / 1e4
                }
                .to_string(),
            );
        }
        page.push_str(rest);
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\r\n",
            page.len()
        );
        if stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(page.as_bytes()))
            .is_err()
        {
            return;
        }
    }
}
