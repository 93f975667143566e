//! Nodes: capacity, and the times when they were not usable.

use super::{Records, TimeColumns, micros};
use crate::StoreError;
use duckdb::params;
use std::collections::{HashMap, HashSet};
use takt_accounting::capacity::{NodeCapacity, effect_of_event, effect_of_state};
use takt_jobs::{Amounts, Node, NodeEvent};
use takt_model::UnixTime;

/// Current size of a cluster, as it was reported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegisteredSize {
    /// Cluster name.
    pub cluster: String,
    /// GPUs of the newest open record.
    pub gpus: u64,
    /// Records without an end. There should be one.
    pub open_records: u64,
}

impl Records<'_> {
    /// Records the nodes that slurmctld reports at `now`. With `as_history`, for clusters without
    /// slurmdbd, changes since the last report become intervals.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn note_nodes(
        &self,
        cluster: &str,
        nodes: &[Node],
        now: UnixTime,
        as_history: bool,
    ) -> Result<(), StoreError> {
        if as_history {
            self.note_node_events(cluster, &self.changes(cluster, nodes, now)?, "slurmctld")?;
        }

        let _writing = self.database.writing();
        let db = self.database.connect()?;
        (|| {
            db.execute_batch("BEGIN")?;
            db.execute("DELETE FROM records.nodes WHERE cluster = ?", params![cluster])?;

            let mut insert = db.prepare(
                "INSERT INTO records.nodes (cluster, node, state, reason, cpus, gpus, mem_bytes, recorded_at, partitions, gpu_model)
                 VALUES (?, ?, ?, ?, ?, ?, ?, make_timestamp(?::BIGINT)::TIMESTAMP_S, ?, ?)",
            )?;
            for node in nodes {
                let Amounts { cpus, gpus, mem_bytes } = node.has;
                insert.execute(params![
                    cluster,
                    node.node,
                    node.state,
                    node.reason,
                    cpus,
                    gpus,
                    mem_bytes,
                    micros(now),
                    node.partitions.join(","),
                    node.gpu_model
                ])?;
            }

            db.execute_batch("COMMIT")
        })()
        .map_err(StoreError::sql("record the nodes"))
    }

    /// Records intervals. A recorded interval is updated.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn note_node_events(
        &self,
        cluster: &str,
        events: &[NodeEvent],
        source: &str,
    ) -> Result<(), StoreError> {
        if events.is_empty() {
            return Ok(());
        }

        let _writing = self.database.writing();
        let db = self.database.connect()?;
        (|| {
            db.execute_batch("BEGIN")?;
            let mut forget = db.prepare(
                "DELETE FROM records.node_events
                 WHERE cluster = ? AND node = ? AND from_time = make_timestamp(?::BIGINT)::TIMESTAMP_S",
            )?;

            let mut insert = db.prepare(
                "INSERT INTO records.node_events VALUES (?, ?, ?, ?, ?, ?, ?,
                     make_timestamp(?::BIGINT)::TIMESTAMP_S, make_timestamp(?::BIGINT)::TIMESTAMP_S, ?)",
            )?;
            for event in events {
                let Amounts { cpus, gpus, mem_bytes } = event.has;
                forget.execute(params![cluster, event.node, micros(event.from)])?;
                insert.execute(params![
                    cluster,
                    event.node,
                    event.state,
                    event.reason,
                    cpus,
                    gpus,
                    mem_bytes,
                    micros(event.from),
                    event.to.map(micros),
                    source
                ])?;
            }

            db.execute_batch("COMMIT")
        })()
        .map_err(StoreError::sql("record when nodes were down"))
    }

    /// Returns the intervals that begin or end with a report of slurmctld.
    fn changes(
        &self,
        cluster: &str,
        nodes: &[Node],
        now: UnixTime,
    ) -> Result<Vec<NodeEvent>, StoreError> {
        let mut open: HashMap<String, NodeEvent> = self
            .node_events(cluster, now)?
            .into_iter()
            .filter(|event| event.to.is_none())
            .map(|e| (e.node.clone(), e))
            .collect();

        let mut total = Amounts::default();
        for node in nodes {
            total.cpus += node.has.cpus;
            total.gpus += node.has.gpus;
            total.mem_bytes += node.has.mem_bytes;
        }

        let cluster_itself = Node {
            has: total,
            counts_gpus: true,
            ..Node::default()
        };

        let unusable = nodes
            .iter()
            .filter(|node| effect_of_state(&node.state).is_some());

        let mut changes = Vec::new();
        let mut lasting = HashSet::new();
        for node in unusable.chain([&cluster_itself]) {
            lasting.insert(node.node.clone());

            let same = open.get(&node.node).is_some_and(|known| {
                known.has == node.has
                    && effect_of_event(&known.state) == effect_of_event(&node.state)
            });
            if same {
                continue;
            }

            changes.extend(open.remove(&node.node).map(|ended| NodeEvent {
                to: Some(now),
                ..ended
            }));

            let Node {
                node,
                state,
                reason,
                has,
                ..
            } = node.clone();
            changes.push(NodeEvent {
                node,
                state,
                reason,
                has,
                from: now,
                to: None,
            });
        }

        changes.extend(
            open.into_values()
                .filter(|event| !lasting.contains(&event.node))
                .map(|ended| NodeEvent {
                    to: Some(now),
                    ..ended
                }),
        );
        // Two changes within a second count as one.
        changes.retain(|event| event.to != Some(event.from));
        Ok(changes)
    }

    /// Returns the intervals of a cluster that had not ended by `from`. Those of one node, and the sizes
    /// of the cluster, do not overlap, even where the reported ones do.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn node_events(&self, cluster: &str, from: UnixTime) -> Result<Vec<NodeEvent>, StoreError> {
        self.list(
            "list when nodes were down",
            "SELECT node, state, reason, cpus, gpus, mem_bytes, epoch_ms(from_time) // 1000, epoch_ms(to_time) // 1000
             FROM memory.main.node_events
             WHERE cluster = ? AND coalesce(to_time > make_timestamp(?::BIGINT)::TIMESTAMP_S, true)
             ORDER BY node, from_time",
            vec![cluster.to_owned().into(), micros(from).into()],
            |row| {
                let amount = |at| Ok::<_, duckdb::Error>(row.get::<_, Option<u64>>(at)?.unwrap_or(0));
                Ok(NodeEvent {
                    node: row.get(0)?,
                    state: row.get(1)?,
                    reason: row.get(2)?,
                    has: Amounts { cpus: amount(3)?, gpus: amount(4)?, mem_bytes: amount(5)? },
                    from: row.time(6)?,
                    to: row.time_if_set(7)?,
                })
            },
        )
    }

    /// Returns the current size of a cluster. `None` if it was never reported.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn registered_size(&self, cluster: &str) -> Result<Option<RegisteredSize>, StoreError> {
        let sizes = self.list(
            "read the size of the cluster",
            "SELECT cluster, coalesce(arg_max(gpus, from_time), 0), count(*) FROM records.node_events
             WHERE cluster = ? AND node = '' AND to_time IS NULL GROUP BY cluster",
            vec![cluster.to_owned().into()],
            |row| {
                Ok(RegisteredSize {
                    cluster: row.get(0)?,
                    gpus: row.get(1)?,
                    open_records: row.get(2)?,
                })
            },
        )?;
        Ok(sizes.into_iter().next())
    }

    /// Returns the state of each node, as the scheduler last reported it: name, Slurm's states, and
    /// the reason.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn node_states(
        &self,
        cluster: &str,
    ) -> Result<Vec<(String, String, Option<String>)>, StoreError> {
        self.list(
            "list the nodes",
            "SELECT node, state, reason FROM records.nodes WHERE cluster = ? ORDER BY node",
            vec![cluster.to_owned().into()],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
    }

    /// Returns the nodes as the scheduler last reported them, without who set their reasons.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn nodes_now(&self, cluster: &str) -> Result<Vec<Node>, StoreError> {
        self.list(
            "list the nodes",
            "SELECT node, state, reason, cpus, gpus, mem_bytes, partitions, gpu_model
             FROM records.nodes WHERE cluster = ? ORDER BY node",
            vec![cluster.to_owned().into()],
            |row| {
                let amount =
                    |at| Ok::<_, duckdb::Error>(row.get::<_, Option<u64>>(at)?.unwrap_or(0));
                let partitions: Option<String> = row.get(6)?;
                let partitions = partitions.unwrap_or_default();
                let names = partitions.split(',').filter(|name| !name.is_empty());
                Ok(Node {
                    node: row.get(0)?,
                    state: row.get(1)?,
                    reason: row.get(2)?,
                    has: Amounts {
                        cpus: amount(3)?,
                        gpus: amount(4)?,
                        mem_bytes: amount(5)?,
                    },
                    partitions: names.map(str::to_owned).collect(),
                    gpu_model: row.get(7)?,
                    ..Node::default()
                })
            },
        )
    }

    /// Returns the capacity of each node.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn node_capacities(&self, cluster: &str) -> Result<Vec<NodeCapacity>, StoreError> {
        self.list(
            "list the nodes",
            "SELECT node, cpus, gpus, mem_bytes FROM records.nodes WHERE cluster = ? ORDER BY node",
            vec![cluster.to_owned().into()],
            |row| {
                let amount =
                    |at| Ok::<_, duckdb::Error>(row.get::<_, Option<u64>>(at)?.unwrap_or(0));
                let amounts = Amounts {
                    cpus: amount(1)?,
                    gpus: amount(2)?,
                    mem_bytes: amount(3)?,
                };
                Ok(NodeCapacity {
                    node: row.get(0)?,
                    amounts,
                })
            },
        )
    }
}
