//! `sacctmgr --parsable2 show`: associations, QOS, node events and reservations.

use crate::cluster::Node;
use crate::page::Demo;
use std::fmt::Write;
use takt_model::UnixTime;

/// `sacctmgr --parsable2 show qos format=Name,Flags,UsageFactor`.
pub(super) const QOS: &str = "Name|Flags|UsageFactor\nnormal||1.000000\nlong||1.500000\n";

/// `show assoc tree format=Cluster,Account,ParentName,User,Partition,Share,GrpTRESMins,LFT`.
pub(super) fn associations(demo: &Demo) -> String {
    let cluster = &demo.cluster;
    let name = cluster.name;
    let mut out = String::from("Cluster|Account|ParentName|User|Partition|Share|GrpTRESMins|LFT\n");
    // `LFT` numbers the rows in the order of the tree: here each row is its own place.
    let mut left = 0;
    let mut row = |account: &str, parent: &str, user: &str, shares: u32| {
        left += 1;
        let _ = writeln!(out, "{name}|{account}|{parent}|{user}||{shares}||{left}");
    };

    row("root", "", "", 1);
    row("root", "", "root", 1);
    for (parent, shares) in &cluster.parents {
        row(parent, "root", "", *shares);
        for (number, account) in cluster
            .accounts
            .iter()
            .enumerate()
            .filter(|(_, account)| account.parent == *parent)
        {
            row(account.name, parent, "", account.shares);
            for user in cluster.users.iter().filter(|user| user.account == number) {
                row(account.name, "", user.name, 1);
            }
        }
    }
    out
}

/// `--noheader show associations format=ID,Account,User`.
pub(super) fn association_ids(demo: &Demo) -> String {
    let mut out = String::from("1|root|\n");
    for (number, account) in demo.cluster.accounts.iter().enumerate() {
        let _ = writeln!(out, "{}|{}|", number + 2, account.name);
    }
    out
}

/// `show event event=cluster,node format=Cluster,NodeName,TimeStart,TimeEnd,State,Reason,TRES`.
pub(super) fn events(demo: &Demo, now: UnixTime) -> String {
    let cluster = &demo.cluster;
    let mut out = String::from("Cluster|NodeName|TimeStart|TimeEnd|State|Reason|TRES\n");
    let sum = |of: &dyn Fn(&Node) -> u64| cluster.nodes.iter().map(of).sum::<u64>();
    // The registered TRES of the cluster are an event without a node.
    let _ = writeln!(
        out,
        "{}||{}|Unknown||Cluster Registered TRES|cpu={},gres/gpu={},mem={}G,node={}",
        cluster.name,
        demo.script.pace.began - 90 * 86_400,
        sum(&|node| u64::from(node.cpus)),
        cluster.gpus(),
        sum(&|node| u64::from(node.memory_gib)),
        cluster.nodes.len(),
    );

    for outage in demo
        .schedule
        .outages
        .iter()
        .filter(|outage| outage.from <= now)
    {
        let node = &cluster.nodes[outage.node];
        // An outage that lasts has no end yet.
        let end = if outage.to <= now {
            outage.to.to_string()
        } else {
            "Unknown".to_owned()
        };
        let _ = writeln!(
            out,
            "{}|{}|{}|{end}|{}|{}|{}",
            cluster.name,
            node.name,
            outage.from,
            outage.state,
            outage.reason,
            node_tres(node),
        );
    }
    out
}

/// `--noheader show reservation format=Name,Start,End,Flags,NodeNames,Assoc,TRES`.
pub(super) fn reservations(demo: &Demo) -> String {
    let maintenance = &demo.schedule.maintenance;
    let nodes = maintenance
        .nodes
        .iter()
        .map(|&node| &demo.cluster.nodes[node]);
    let names: Vec<&str> = nodes.clone().map(|node| node.name.as_str()).collect();
    let cpus: u32 = nodes.clone().map(|node| node.cpus).sum();
    let gpus: usize = nodes.map(|node| node.gpus.len()).sum();
    format!(
        "{}|{}|{}|MAINT,SPEC_NODES|{}|1|cpu={cpus},gres/gpu={gpus}\n",
        maintenance.name,
        maintenance.from,
        maintenance.to,
        names.join(","),
    )
}

/// Returns the TRES of a node.
pub(super) fn node_tres(node: &Node) -> String {
    let gpus = node.gpus.len();
    let gres = node.model.map_or_else(String::new, |model| {
        format!(",gres/gpu={gpus},gres/gpu:{}={gpus}", model.gres)
    });
    format!(
        "cpu={},mem={}G,billing={}{gres}",
        node.cpus, node.memory_gib, node.cpus
    )
}
