//! `openapi.yaml`: the description of this API, from the list of routes.

use super::routes::{self, Route};
use axum::http::header;
use axum::response::IntoResponse;
use serde_json::{Map, Value, json};

/// `openapi.yaml`.
pub(super) async fn openapi() -> impl IntoResponse {
    let mut text = String::new();
    write_yaml(&mut text, &document(), 0);
    (
        [(header::CONTENT_TYPE, "application/yaml; charset=utf-8")],
        text,
    )
}

fn document() -> Value {
    let paths = routes::all();
    let paths = paths
        .iter()
        .map(|route| (route.path.to_owned(), path_item(route)));

    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Takt, Prometheus' HTTP API",
            "description": "The routes of Prometheus' HTTP API that Takt answers.",
            "version": env!("CARGO_PKG_VERSION"),
        },
        "paths": paths.collect::<Map<String, Value>>(),
        "components": {
            "schemas": {"Success": success(), "Error": error()},
        },
    })
}

fn path_item(route: &Route) -> Value {
    let mut item = json!({
        "get": operation(route, query_parameters(route), None),
    });
    if route.takes_form {
        item["post"] = operation(route, path_parameters(route), Some(form(route)));
    }
    item
}

fn operation(route: &Route, parameters: Vec<Value>, body: Option<Value>) -> Value {
    let answer = |schema: &str| {
        let schema = json!({"$ref": format!("#/components/schemas/{schema}")});
        json!({"application/json": {"schema": schema}})
    };

    // Two routes answer with texts instead of the JSON envelope.
    let content = match route.path {
        "/federate" => json!({"text/plain": {"schema": {"type": "string"}}}),
        "/api/v1/openapi.yaml" => json!({
            "application/yaml": {"schema": {"type": "object"}},
        }),
        _ => answer("Success"),
    };

    let mut operation = json!({
        "summary": route.summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "Success.", "content": content},
            "default": {
                "description": "Error.",
                "content": answer("Error"),
            },
        },
    });

    if let Some(body) = body {
        operation["requestBody"] = body;
    }
    operation
}

fn path_parameters(route: &Route) -> Vec<Value> {
    if !route.path.contains("{name}") {
        return Vec::new();
    }
    let about = "Name of a label.";
    vec![json!({
        "name": "name", "in": "path", "required": true, "description": about,
        "schema": {"type": "string"},
    })]
}

fn query_parameters(route: &Route) -> Vec<Value> {
    let own = route.parameters.iter().map(|parameter| {
        json!({
            "name": parameter.name,
            "in": "query",
            "required": parameter.is_required,
            "description": parameter.about,
            "schema": {"type": "string"},
        })
    });
    path_parameters(route).into_iter().chain(own).collect()
}

fn form(route: &Route) -> Value {
    let properties = route.parameters.iter().map(|parameter| {
        let property = json!({"type": "string", "description": parameter.about});
        (parameter.name.to_owned(), property)
    });
    let schema = json!({
        "type": "object",
        "properties": properties.collect::<Map<_, _>>(),
    });
    json!({
        "content": {
            "application/x-www-form-urlencoded": {"schema": schema},
        },
    })
}

fn success() -> Value {
    let texts = json!({"type": "array", "items": {"type": "string"}});
    json!({
        "type": "object",
        "required": ["status", "data"],
        "properties": {
            "status": {"const": "success"},
            "data": {},
            "warnings": texts,
            "infos": texts,
        },
    })
}

fn error() -> Value {
    let text = json!({"type": "string"});
    json!({
        "type": "object",
        "required": ["status", "errorType", "error"],
        "properties": {
            "status": {"const": "error"},
            "errorType": text,
            "error": text,
        },
    })
}

/// Writes a value at this depth, after its key or its `-`. Texts are written as in JSON, which is a part of YAML.
fn write_yaml(out: &mut String, value: &Value, depth: usize) {
    let begin_line = |out: &mut String| {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&"  ".repeat(depth));
    };

    match value {
        Value::Object(entries) if !entries.is_empty() => {
            for (key, value) in entries {
                begin_line(out);
                out.push_str(&format!("{}:", Value::from(key.as_str())));
                write_yaml(out, value, depth + 1);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                begin_line(out);
                out.push('-');
                write_yaml(out, item, depth + 1);
            }
        }
        // Empty objects and lists are written as in JSON, too.
        plain => out.push_str(&format!(" {plain}")),
    }

    if depth == 0 {
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_model::yaml::Node;

    fn assert_same(read: &Node, value: &Value, path: &str) {
        match value {
            Value::Object(entries) => {
                for (key, value) in entries {
                    let path = format!("{path}.{key}");
                    let below = read.get(key).unwrap_or_else(|| panic!("no {path}"));
                    assert_same(below, value, &path);
                }
            }
            Value::Array(items) => {
                let below = read.list().unwrap();
                assert_eq!(below.len(), items.len(), "{path}");
                for (below, item) in below.iter().zip(items) {
                    assert_same(below, item, path);
                }
            }
            Value::Bool(value) => assert_eq!(read.boolean().unwrap(), *value, "{path}"),
            value => assert_eq!(read.text().unwrap(), value.as_str().unwrap(), "{path}"),
        }
    }

    #[test]
    fn the_text_is_yaml_of_the_document() {
        let mut text = String::new();
        write_yaml(&mut text, &document(), 0);
        let read = Node::read(&text).unwrap();
        let document = document();
        assert_same(&read, &document, "");

        let range = &document["paths"]["/api/v1/query_range"];
        assert_eq!(range["get"]["parameters"][3]["name"], "step");
        assert!(range["post"]["requestBody"].is_object());
        assert!(document["paths"]["/api/v1/targets"]["post"].is_null());
    }
}
