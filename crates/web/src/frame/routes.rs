//! The routes of all pages, from the list of pages.

use super::assets::{ICON, LOGIN, SCRIPT, STYLE};
use super::form::FORM_MAX;
use super::rendered::{Body, Cache, Rendered};
use super::visit::Format;
use super::{Content, Form, FormReply, Page, PageError, Visit, live, templates};
use crate::pages::PAGES;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, RawQuery};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use minijinja::{Value, context};
use std::sync::Arc;
use takt_access::{Need, Refusal, RouteNeeds, Viewer};
use takt_api::PageState;
use takt_identity::{By, GuardedRouter, RefusedPage, RefusedRequest, with_retry};
use takt_model::UnixTime;
use takt_questions::query_memory::account_of;
use takt_questions::{AnswerError, SourcesQuestion, source_warnings};
use takt_store::{MemoryAccount, WorkError, WorkPlaces, blocking};

/// Policy of a whole document: style of its own, and nothing else.
const DOCUMENT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; \
    form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

/// Sources and cache of the pages.
#[derive(Clone)]
pub(super) struct Frame {
    pub site: PageState,
    pub cache: Cache,
}

/// A request for a page.
#[derive(Clone)]
pub(super) struct Request {
    pub viewer: Viewer,
    pub path: String,
    pub query: String,
    pub parameters: Vec<(String, String)>,
}

/// The routes of all pages.
pub fn routes(site: PageState) -> GuardedRouter {
    let frame = Frame {
        site,
        cache: Cache::default(),
    };
    let mut router = GuardedRouter::new();
    for page in PAGES {
        // A form needs a role to change something, while the page may be read with less.
        let reads = RouteNeeds::get(page.need);
        let needs = match page.submit {
            Some(_) if page.is_open => RouteNeeds {
                read: page.need,
                other: Need::Signed,
            },
            Some(_) => RouteNeeds::get_or_change(page.need, page.submit_role),
            None => reads,
        };
        router = router.route(page.path, needs, handlers(page, &frame));
        // A path that ends with a name has its ending in the name: `/nodes/g01.csv`.
        if page.has_rows && !page.path.ends_with('}') {
            for ending in [".csv", ".json"] {
                let path = format!("{}{ending}", page.path);
                router = router.route(&path, needs, handlers(page, &frame));
            }
        }
        // The stream needs what reading the page needs.
        if page.is_live {
            let path = format!("/live{}", page.path);
            router = router.route(&path, reads, live::handler(page, frame.clone()));
        }
    }
    for asset in [&STYLE, &SCRIPT, &LOGIN, &ICON] {
        let show = async |headers: HeaderMap| asset.response(&headers);
        router = router.route(&asset.path, RouteNeeds::get(Need::Nothing), get(show));
    }
    let refused_frame = frame.clone();
    let refused = RefusedPage::new(move |refused| {
        let frame = refused_frame.clone();
        async move { frame.refused(refused).await }
    });
    let no_page = move |By(viewer): By, uri: Uri| no_page(frame, viewer, uri);
    router.refused(refused).map(|router| {
        router
            .layer(DefaultBodyLimit::max(FORM_MAX))
            .fallback(no_page)
    })
}

fn handlers(page: &'static Page, frame: &Frame) -> MethodRouter {
    let reader = frame.clone();
    let show = async move |By(viewer): By,
                           uri: Uri,
                           RawQuery(query): RawQuery,
                           Path(parameters): Path<Vec<(String, String)>>,
                           headers: HeaderMap| {
        let request = Request {
            viewer,
            path: uri.path().to_owned(),
            query: query.unwrap_or_default(),
            parameters,
        };
        reader.show(page, request, &headers).await
    };
    let routes = get(show);
    // Without a form, POST gets 405 from the router.
    if page.submit.is_none() {
        return routes;
    }
    let frame = frame.clone();
    routes.post(
        async move |By(viewer): By,
                    uri: Uri,
                    Path(parameters): Path<Vec<(String, String)>>,
                    body: Bytes| {
            // The query of a form's address is not read: its fields are.
            let request = Request {
                viewer,
                path: uri.path().to_owned(),
                query: String::new(),
                parameters,
            };
            frame.submit(page, request, body).await
        },
    )
}

impl Frame {
    async fn show(&self, page: &'static Page, request: Request, headers: &HeaderMap) -> Response {
        let visit = Visit::of(&self.site, &request);
        // A reply depends on its reader, so no shared cache may keep it. The browser asks each time.
        let kept = [(header::CACHE_CONTROL, "private, no-cache")];
        match visit.format {
            Format::Html => {
                let rendered = match self.rendered(page, request).await {
                    Ok(rendered) => rendered,
                    Err(error) => return self.without_work(visit, error).await,
                };
                let mut response = (kept, rendered.response(headers)).into_response();
                // A report has inline style, which the policy of the pages refuses.
                if rendered.is_document {
                    let policy = HeaderValue::from_static(DOCUMENT_POLICY);
                    response
                        .headers_mut()
                        .insert(header::CONTENT_SECURITY_POLICY, policy);
                }
                with_retry(response)
            }
            _ => {
                // A file has all rows, so it is neither kept nor rendered with a page.
                let (work, account) = self.work_of(&request.viewer);
                let file = move || {
                    file(page, &visit)
                        .map_err(|error| Box::new(error_page(&visit.site, &visit, &error)))
                };
                match work.read(&account, file).await {
                    Ok(Ok(body)) => (kept, body.response(headers)).into_response(),
                    Ok(Err(error)) => with_retry(
                        (error.status, kept, error.body.response(headers)).into_response(),
                    ),
                    Err(error) => {
                        // The first visit went into the work.
                        let visit = Visit::of(&self.site, &request);
                        self.without_work(visit, error).await
                    }
                }
            }
        }
    }

    /// The places of a viewer's work, and the account of one request.
    fn work_of(&self, viewer: &Viewer) -> (WorkPlaces, MemoryAccount) {
        let config = &self.site.config;
        (config.work.clone(), account_of(&config.memory, viewer))
    }

    /// The page for a request whose work had no place, or failed.
    async fn without_work(&self, visit: Visit, error: WorkError) -> Response {
        let error = PageError::from(AnswerError::from(error));
        let shown = blocking(move || error_page(&visit.site, &visit, &error)).await;
        // The busy server may answer the next request.
        let not_kept = [(header::CACHE_CONTROL, "no-store")];
        with_retry((not_kept, shown.response(&HeaderMap::new())).into_response())
    }

    /// The page for a request that its viewer may not make.
    async fn refused(&self, refused: RefusedRequest) -> Response {
        let request = Request {
            viewer: refused.viewer,
            path: refused.path,
            query: String::new(),
            parameters: Vec::new(),
        };
        let (work, account) = self.work_of(&request.viewer);
        let visit = Visit::of(&self.site, &request);
        let error = PageError::refused(&refused.reason);
        let show = move || error_page(&visit.site, &visit, &error);
        match work.read(&account, show).await {
            Ok(shown) => {
                let not_kept = [(header::CACHE_CONTROL, "no-store")];
                (not_kept, shown.response(&HeaderMap::new())).into_response()
            }
            Err(error) => {
                let visit = Visit::of(&self.site, &request);
                self.without_work(visit, error).await
            }
        }
    }

    /// The page, rendered now or within the last seconds.
    ///
    /// # Errors
    /// If all places for work stay taken.
    pub async fn rendered(
        &self,
        page: &'static Page,
        request: Request,
    ) -> Result<Arc<Rendered>, WorkError> {
        let address = format!("{}?{}", request.path, request.query);
        let viewer = request.viewer.clone();
        let site = self.site.clone();
        // Counted before the page reads: a change meanwhile makes the page old.
        let changes = site.store.database().record_changes();
        let (work, account) = self.work_of(&viewer);
        let render = async move || {
            let render = move || render(page, &site, &request);
            work.read(&account, render).await
        };
        self.cache.page(changes, &viewer, &address, render).await
    }

    async fn submit(&self, page: &'static Page, request: Request, body: Bytes) -> Response {
        let fields = form_urlencoded::parse(&body).into_owned().collect();
        let visit = Visit::of(&self.site, &request);
        let cache = self.cache.clone();
        // Forms take no place for work, which only readings need.
        let outcome = blocking(move || {
            let shown = match page.submit.map(|submit| submit(&visit, &Form(fields))) {
                Some(Ok(FormReply::Redirect(to))) => return Ok(to),
                Some(Ok(FormReply::Page(content))) => html(page, &request, &visit, *content),
                Some(Err(error)) => Err(error),
                None => Err(PageError::no_page(&visit.path)),
            };
            let rendered = shown.unwrap_or_else(|error| error_page(&visit.site, &visit, &error));
            Err(Box::new(rendered))
        })
        .await;
        // Each kept page may show what the form has changed.
        cache.clear();
        match outcome {
            Ok(to) => (StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response(),
            Err(shown) => {
                // A page after a form shows something once, such as a new token.
                let not_kept = [(header::CACHE_CONTROL, "no-store")];
                (not_kept, shown.response(&HeaderMap::new())).into_response()
            }
        }
    }
}

impl Visit {
    fn of(site: &PageState, request: &Request) -> Self {
        let (path, mut format) = Format::of(&request.path);
        let mut parameters = request.parameters.clone();
        // The router gives the last name with the ending of the file.
        if let Some((_, last)) = parameters.last_mut() {
            let (name, ending) = Format::of(last);
            format = ending;
            *last = name.to_owned();
        }
        Self {
            site: site.clone(),
            viewer: request.viewer.clone(),
            now: jiff::Timestamp::now(),
            path: path.to_owned(),
            parameters,
            query: form_urlencoded::parse(request.query.as_bytes())
                .into_owned()
                .collect(),
            format,
        }
    }
}

fn render(page: &'static Page, site: &PageState, request: &Request) -> Rendered {
    let visit = Visit::of(site, request);
    visit
        .check_query(page)
        .and_then(|()| {
            let content = (page.show)(&visit)?;
            if let Some(document) = content.document {
                return Ok(Rendered::document(document));
            }
            if let Some(location) = content.moved {
                return Ok(Rendered::moved(location));
            }
            html(page, request, &visit, content)
        })
        .unwrap_or_else(|error| error_page(site, &visit, &error))
}

fn html(
    page: &Page,
    request: &Request,
    visit: &Visit,
    content: Content,
) -> Result<Rendered, PageError> {
    let table = content.table.as_ref().map(super::Table::on_page);
    let values = context! {
        title => content.title,
        table => table,
        live => live_address(page, request),
        permanent => visit.address(&[]),
        ..content.values
    };
    let html = templates::render(page.path, frame(&visit.site, visit, values))?;
    Ok(Rendered::page(StatusCode::OK, &html))
}

fn live_address(page: &Page, request: &Request) -> Option<String> {
    // The stream renders with the same filters as the page.
    let query = if request.query.is_empty() { "" } else { "?" };
    page.is_live
        .then(|| format!("/live{}{query}{}", request.path, request.query))
}

/// The page's table or picture as a file.
fn file(page: &Page, visit: &Visit) -> Result<Body, PageError> {
    visit.check_query(page)?;
    let content = (page.show)(visit)?;

    let has_no = |what: &str| {
        PageError::no_page(&visit.path).next(
            &visit.address(&[]),
            &format!("The page, which has no {what}"),
        )
    };
    match (visit.format, content.table, content.picture) {
        (Format::Svg, _, Some(picture)) => {
            Ok(Body::new("image/svg+xml", picture.file().into_bytes()))
        }
        (Format::Svg, ..) => Err(has_no("picture")),
        (_, None, _) => Err(has_no("table")),
        (Format::Json, Some(table), _) => Ok(Body::new(
            "application/json",
            table.json().to_string().into_bytes(),
        )),
        (_, Some(table), _) => {
            let csv = table.csv().map_err(|error| PageError::failed(&error))?;
            Ok(Body::new("text/csv; charset=utf-8", csv))
        }
    }
}

/// A link of the navigation.
#[derive(serde::Serialize)]
struct Link {
    name: &'static str,
    path: &'static str,
    is_current: bool,
    is_first: bool,
}

/// Adds what the layout shows on every page.
fn frame(site: &PageState, visit: &Visit, values: Value) -> Value {
    let mut entries: Vec<_> = PAGES
        .iter()
        .filter(|page| (page.is_listed)(site) && is_offered(page, &visit.viewer))
        .filter_map(|page| page.menu.map(|(group, name)| (group, name, page.path)))
        .collect();
    // The order of the list is kept within a group.
    entries.sort_by_key(|(group, ..)| *group);
    let mut last = None;
    let menu: Vec<Link> = entries
        .into_iter()
        .map(|(group, name, path)| {
            // A page is current with the pages below its address, but `/` is above all of them.
            let below = visit.path.strip_prefix(path);
            Link {
                name,
                path,
                is_current: visit.path == path
                    || path != "/" && below.is_some_and(|rest| rest.starts_with('/')),
                is_first: last.replace(group).is_some_and(|last| last != group),
            }
        })
        .collect();
    let has_sql = menu.iter().any(|link| link.path == "/sql");
    let account = visit.viewer.user();
    let ways = &site.config.sign_in;
    context! {
        account,
        may_sign_in => account.is_none() && (ways.passwords || ways.oidc.is_some()),
        cluster => &*site.cluster,
        zone => site.zone.iana_name().unwrap_or("UTC").trim_start_matches("Etc/"),
        // Full minutes: an unchanged page keeps its version for a minute.
        now => UnixTime::from(visit.now).round_down(60),
        path => visit.path,
        menu,
        has_sql,
        warnings => warnings(visit),
        icon => ICON.path,
        ..values
    }
}

/// Whether the navigation has a page: not for a viewer whose role it refuses. Who is not signed in yet finds all.
fn is_offered(page: &Page, viewer: &Viewer) -> bool {
    !matches!(viewer.check(page.need), Err(Refusal::Role(_)))
}

/// Returns what is old or not complete on pages, for those who are signed in.
fn warnings(visit: &Visit) -> Vec<String> {
    let sources = visit.ask(&SourcesQuestion {}).unwrap_or_default();
    source_warnings(&sources)
}

fn error_page(site: &PageState, visit: &Visit, error: &PageError) -> Rendered {
    let values = context! { title => error.title, error };
    let html = templates::render("error", frame(site, visit, values))
        // An error page must not fail with an error.
        .unwrap_or_else(|_| "the page of this error cannot be shown".to_owned());
    Rendered::page(error.status, &html)
}

/// Returns the address without the slashes at the end of its path. `None` if it has none. A browser
/// takes two slashes, or backslashes, at the beginning for the name of another server.
fn without_slash(uri: &Uri) -> Option<String> {
    let path = uri.path().strip_suffix('/')?.trim_matches('/');
    // A browser takes a backslash for a slash.
    if path.is_empty() || path.contains('\\') {
        return None;
    }

    let query = uri
        .query()
        .map_or_else(String::new, |query| format!("?{query}"));
    Some(format!("/{path}{query}"))
}

async fn no_page(frame: Frame, viewer: Viewer, uri: Uri) -> Response {
    // Programs get no page.
    if ["/api/", "/-/", "/live/", "/static/"]
        .iter()
        .any(|start| uri.path().starts_with(start))
    {
        return StatusCode::NOT_FOUND.into_response();
    }
    // A reader may guess this address; the nodes have their GPUs beside them.
    if uri.path() == "/gpus" {
        return (
            StatusCode::TEMPORARY_REDIRECT,
            [(header::LOCATION, "/nodes")],
        )
            .into_response();
    }
    if let Some(to) = without_slash(&uri) {
        return (StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, to)]).into_response();
    }

    let request = Request {
        viewer,
        path: uri.path().to_owned(),
        query: String::new(),
        parameters: Vec::new(),
    };
    let visit = Visit::of(&frame.site, &request);
    error_page(&frame.site, &visit, &PageError::no_page(uri.path())).response(&HeaderMap::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_access::{Privacy, Role, Way};

    #[test]
    fn the_navigation_has_what_the_viewer_may_open() {
        let offers = |path: &str, role: Role, way: Way, privacy: Privacy| {
            let page = PAGES.iter().find(|page| page.path == path).unwrap();
            is_offered(page, &Viewer::new(role, way, privacy).with_user("ann"))
        };
        assert!(!offers("/sql", Role::User, Way::Session, Privacy::Private));
        assert!(offers("/sql", Role::User, Way::Session, Privacy::Open));
        assert!(offers("/sql", Role::Viewer, Way::Session, Privacy::Private));
        assert!(!offers("/servers", Role::User, Way::Session, Privacy::Open));
        assert!(offers("/jobs", Role::User, Way::Session, Privacy::Private));
        // Signing in may raise the role.
        assert!(offers(
            "/sql",
            Role::Anonymous,
            Way::Unknown,
            Privacy::Private
        ));
    }

    #[test]
    fn an_address_loses_its_last_slash_and_stays_on_this_server() {
        for (address, expected) in [
            ("/nodes/", Some("/nodes")),
            ("/nodes/g01/?days=3", Some("/nodes/g01?days=3")),
            // Without the trimmed slashes, the browser would go to other.example.
            ("//other.example/", Some("/other.example")),
            ("/\\other.example/", None),
            ("/nodes", None),
            ("/", None),
            ("//", None),
        ] {
            let uri: Uri = address.parse().unwrap();
            assert_eq!(without_slash(&uri).as_deref(), expected, "{address}");
        }
    }
}
