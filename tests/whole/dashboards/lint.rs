//! Rules for every board and panel: explanations, variables, clusters, links, metrics, limits.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

use super::boards::{Board, Kind, boards, list, metrics, repository, text};
use super::declared::Declared;
use std::fs;
use takt_model::yaml;

/// Boards that show all nodes of a cluster at once. Their panels must stay readable with 300 nodes.
const WIDE: [&str; 10] = [
    "alerts",
    "cluster",
    "energy",
    "gpu-faults",
    "network",
    "queue",
    "self",
    "storage",
    "user",
    "waste",
];

/// Fails with every message, so that one run shows all of them.
#[track_caller]
fn all_well(wrong: &[String]) {
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn each_panel(check: impl Fn(&Board, &Value) -> Vec<&'static str>) {
    let mut wrong = Vec::new();
    for board in boards() {
        for panel in board.panels() {
            for what in check(&board, panel) {
                wrong.push(format!("{}: {}: {what}", board.name, text(&panel["title"])));
            }
        }
    }
    all_well(&wrong);
}

/// The messages whose condition holds.
fn those(conditions: &[(bool, &'static str)]) -> Vec<&'static str> {
    conditions
        .iter()
        .filter(|(holds, _)| *holds)
        .map(|(_, what)| *what)
        .collect()
}

#[test]
fn every_panel_explains_itself() {
    each_panel(|_, panel| {
        let defaults = &panel["fieldConfig"]["defaults"];
        let description = text(&panel["description"]);
        those(&[
            (text(&panel["title"]).is_empty(), "no title"),
            (
                description.len() < 30 || !description.ends_with('.'),
                "no sentence as description",
            ),
            (text(&defaults["unit"]).is_empty(), "no unit"),
            (
                text(&defaults["noValue"]).is_empty(),
                "no text for when it has no data",
            ),
            (
                list(&defaults["thresholds"]["steps"]).count() == 0,
                "no thresholds",
            ),
            (
                !defaults["mappings"].is_array(),
                "no list of value mappings",
            ),
            (list(&panel["targets"]).count() == 0, "no query"),
        ])
    });
}

#[test]
fn panels_lie_side_by_side() {
    let mut wrong = Vec::new();
    for board in boards() {
        let mut taken = BTreeMap::new();
        let mut ids = BTreeSet::new();
        for panel in list(&board.json["panels"]) {
            let title = text(&panel["title"]);
            if !ids.insert(panel["id"].as_u64()) {
                wrong.push(format!("{}: {title}: its id is another's", board.name));
            }
            let [x, y, w, h] =
                ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
            if x + w > 24 {
                wrong.push(format!("{}: {title}: beyond the right edge", board.name));
            }
            for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
                if let Some(other) = taken.insert(cell, title) {
                    wrong.push(format!("{}: {title} lies over {other}", board.name));
                    break;
                }
            }
        }
    }
    all_well(&wrong);
}

#[test]
fn every_board_has_its_variables_and_annotations() {
    let mut wrong = Vec::new();
    for board in boards() {
        let names: BTreeSet<_> = board
            .variables()
            .map(|variable| text(&variable["name"]))
            .collect();
        for wanted in [
            "datasource",
            "sql",
            "cluster",
            "partition",
            "account",
            "user",
            "node",
        ] {
            if !names.contains(wanted) {
                wrong.push(format!("{}: no variable {wanted}", board.name));
            }
        }
        let annotations: BTreeSet<_> = list(&board.json["annotations"]["list"])
            .map(|annotation| text(&annotation["name"]))
            .collect();
        for wanted in ["Alerts", "Node states"] {
            if !annotations.contains(wanted) {
                wrong.push(format!("{}: no annotation {wanted}", board.name));
            }
        }

        // Those of a whole cluster would cover every curve.
        if annotations.contains("Jobs") != (board.name == "job") {
            wrong.push(format!("{}: jobs are marked on the job board", board.name));
        }
        if board.json["uid"] != format!("takt-{}", board.name) {
            wrong.push(format!("{}: another uid than its file's name", board.name));
        }
        if board.json["schemaVersion"] != 38 {
            wrong.push(format!("{}: not the schema of Grafana 10.2", board.name));
        }
        let queries = board
            .panel_queries()
            .into_iter()
            .chain(board.annotation_queries());
        let variables = board.variable_statements().into_iter();
        for query in queries.chain(variables.chain(board.variable_queries())) {
            for name in used(&query.text) {
                if !names.contains(name.as_str()) && !name.starts_with("__") {
                    wrong.push(format!("{}: ${name} is not a variable", query.place));
                }
            }
        }
    }
    all_well(&wrong);
}

/// Names of the variables that a query uses.
fn used(query: &str) -> Vec<String> {
    query
        .split('$')
        .skip(1)
        .map(|rest| rest.trim_start_matches('{'))
        .map(|rest| {
            let end = rest
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .unwrap_or(rest.len());
            rest[..end].to_owned()
        })
        // `$.key` is a path in JSON.
        .filter(|name| !name.is_empty())
        .collect()
}

/// Two clusters with nodes of the same name stay apart, and no name of a scrape job is relied on.
#[test]
fn every_query_chooses_its_cluster() {
    /// Tables without a cluster.
    const OF_NONE: [&str; 3] = ["notifications", "silences", "rejects"];
    let mut wrong = Vec::new();
    for board in boards() {
        for query in board
            .panel_queries()
            .into_iter()
            .chain(board.annotation_queries())
        {
            let cluster = if query.is_promql() {
                r#"cluster=~"$cluster"#
            } else {
                "${cluster:regex}"
            };
            let without = OF_NONE
                .iter()
                .any(|table| query.text.contains(&format!("FROM {table} ")));
            if !query.text.contains(cluster) && !without {
                wrong.push(format!("{}: any cluster", query.place));
            }
            if query.text.contains("job=\"") || query.text.contains("job=~\"node") {
                wrong.push(format!(
                    "{}: relies on the name of a scrape job",
                    query.place
                ));
            }
            let loses = |clause: &str| {
                query.is_promql()
                    && query.text.split(clause).skip(1).any(|rest| {
                        let labels = rest.split(')').next().unwrap_or_default();
                        labels.contains("node") && !labels.contains("cluster")
                    })
            };
            if ["by (", "on ("].into_iter().any(loses) {
                wrong.push(format!(
                    "{}: joins nodes of different clusters",
                    query.place
                ));
            }
        }
    }
    all_well(&wrong);
}

/// A line for each of 300 nodes cannot be read: such a panel must choose, or count.
#[test]
fn wide_boards_choose_what_they_show() {
    let mut wrong = Vec::new();
    for board in boards()
        .iter()
        .filter(|board| WIDE.contains(&board.name.as_str()))
    {
        for query in board.panel_queries() {
            let by_node = query.kind == Kind::Range && query.legend.contains("{{node}}");
            if by_node && !query.text.contains("topk(") && !query.text.contains("bottomk(") {
                wrong.push(format!("{}: a line for every node", query.place));
            }
        }
    }
    all_well(&wrong);
}

/// From the cluster to a node, its GPUs, their jobs and their users, a click each.
#[test]
fn boards_lead_to_each_other() {
    let boards = boards();
    let names: BTreeSet<_> = boards.iter().map(|board| board.name.as_str()).collect();
    let mut leads: BTreeSet<(String, String)> = BTreeSet::new();
    for board in &boards {
        for panel in board.panels() {
            let config = &panel["fieldConfig"];
            let of_columns = list(&config["overrides"])
                .flat_map(|rule| list(&rule["properties"]))
                .filter(|property| property["id"] == "links")
                .flat_map(|property| list(&property["value"]));
            for link in list(&config["defaults"]["links"]).chain(of_columns) {
                let url = text(&link["url"]);
                let to = url
                    .strip_prefix("/d/takt-")
                    .and_then(|rest| rest.split('?').next())
                    .unwrap_or_else(|| panic!("{}: {url}", board.name));
                assert!(names.contains(to), "{}: no board {to}", board.name);
                assert!(
                    url.contains("var-cluster="),
                    "{}: {url} leaves its cluster",
                    board.name
                );
                leads.insert((board.name.clone(), to.to_owned()));
            }
        }
        assert_eq!(
            board.json["links"][0]["tags"][0], "takt",
            "{} links to no other",
            board.name
        );
    }
    for step in [
        ("cluster", "node"),
        ("node", "gpu"),
        ("gpu", "job"),
        ("job", "user"),
        ("user", "account"),
    ] {
        let step = (step.0.to_owned(), step.1.to_owned());
        assert!(
            leads.contains(&step),
            "no link from {} to {}",
            step.0,
            step.1
        );
    }
}

#[test]
fn every_metric_is_declared() {
    let declared = Declared::read();
    let mut wrong = Vec::new();
    for board in boards() {
        for query in board
            .panel_queries()
            .into_iter()
            .chain(board.annotation_queries())
            .chain(board.variable_queries())
        {
            if !query.is_promql() {
                continue;
            }
            for metric in metrics(&query.text)
                .iter()
                .filter(|metric| !declared.has(metric))
            {
                wrong.push(format!("{}: nothing declares {metric}", query.place));
            }
        }
    }
    all_well(&wrong);
}

/// The made-up page of the live tests has only names and labels that collectors declare.
#[test]
fn the_made_up_page_is_as_declared() {
    let declared = Declared::read();
    let mut wrong = Vec::new();
    for line in super::hardware()
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let series = line.rsplit_once(' ').unwrap().0;
        let (metric, labels) = series.split_once('{').unwrap_or((series, ""));
        if !declared.has(metric) {
            wrong.push(format!("nothing declares {metric}"));
        }
        let Some(wanted) = declared.metrics.get(metric) else {
            continue;
        };

        // Values of this page contain no `=`, so that every `NAME="` is a label.
        let present: BTreeSet<_> = labels
            .match_indices("=\"")
            .map(|(at, _)| labels[..at].rsplit(['{', ',']).next().unwrap())
            .collect();
        if present != wanted.iter().copied().collect() {
            wrong.push(format!(
                "{metric} has the labels {wanted:?}, here {present:?}"
            ));
        }
    }
    all_well(&wrong);
}

/// Limits are those of the rules, and a panel takes them from the server where it answers.
#[test]
fn limits_are_those_of_the_rules() {
    let rules = repository().join("dashboards/rules/thresholds.rules.yml");
    let rules = fs::read_to_string(rules).unwrap();
    let mut limits = 0;
    each_panel(|_, panel| {
        let Some(limit) = list(&panel["targets"]).find(|target| target["refId"] == "limit") else {
            return Vec::new();
        };
        let name = text(&limit["expr"]).split("name=\"").nth(1).unwrap();
        let name = name.split('"').next().unwrap();
        let steps: Vec<_> =
            list(&panel["fieldConfig"]["defaults"]["thresholds"]["steps"]).collect();
        let taken = list(&panel["transformations"]).any(|step| step["id"] == "configFromData");
        those(&[
            (
                !rules.contains(&format!("{{name: {name}}}")),
                "a limit that no rule has",
            ),
            (steps.len() != 2, "not one limit"),
            (!taken, "does not take the limit of the server"),
        ])
    });
    for board in boards() {
        limits += board
            .panels()
            .filter(|panel| panel.to_string().contains("takt_threshold"))
            .count();
    }
    assert!(
        limits >= 25,
        "only {limits} panels show a limit of the rules"
    );
}

/// Files for Grafana's provisioning folder are YAML, and name the same data sources.
#[test]
fn provisioning_files_agree() {
    let read = |name: &str| {
        let path = repository().join("dashboards/provisioning").join(name);
        yaml::from_str::<Value>(&fs::read_to_string(path).unwrap()).unwrap()
    };
    let sources = read("datasources/takt.yaml");
    let uids: BTreeMap<_, _> = list(&sources["datasources"])
        .map(|source| (text(&source["uid"]), text(&source["type"])))
        .collect();
    assert_eq!(
        uids,
        [
            ("takt-metrics", "prometheus"),
            ("takt-alerts", "alertmanager"),
            ("takt-records", "postgres")
        ]
        .into()
    );
    let records = list(&sources["datasources"])
        .find(|source| source["uid"] == "takt-records")
        .unwrap();
    assert_eq!(records["database"], "takt");
    assert_eq!(records["jsonData"]["database"], "takt");
    let folder = read("dashboards/takt.yaml")["providers"][0]["options"]["path"].clone();
    assert_eq!(folder, "/usr/local/share/doc/takt/grafana");
    let alerting = read("alerting/takt.yaml");
    for target in list(&alerting["groups"][0]["rules"][0]["data"]) {
        let uid = text(&target["datasourceUid"]);
        assert!(uid == "__expr__" || uids.contains_key(uid), "{uid}");
    }
    assert_eq!(
        alerting["contactPoints"][0]["receivers"][0]["type"],
        "prometheus-alertmanager"
    );

    // Variables of boards find the sources by these types.
    for board in boards() {
        for variable in board
            .variables()
            .filter(|variable| variable["type"] == "datasource")
        {
            let wanted = text(&variable["query"]);
            assert!(
                uids.values().any(|kind| *kind == wanted),
                "{}: {wanted}",
                board.name
            );
        }
    }
}
