//! Places of requests by class, so that a crowd, or one user, cannot keep the server from answering
//! its administrators, its senders of samples and the health checks.
//!
//! A connection has no place until the access check knows who asks; until then it gives way to new
//! ones, except while a refusal is made. Then the request takes a place of its class until it is
//! answered.

use super::{LINK_PATH, MUNGE_PATH, Peer, RETRY_AFTER};
use axum::Extension;
use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::Arc;
use takt_access::{Need, Role, Viewer, Way};
use takt_connections::{ClassPlaces, Connection, NoPlace, PlaceHolder, UPLOAD_TIME};
use takt_model::client_of;
use takt_questions::IMPORT_PATH;

/// Least number of places of a class, however few files may be open.
const LEAST_PLACES: usize = 4;

/// Of them, those of one holder: a browser asks twice at once.
const LEAST_PLACES_OF_ONE: usize = 2;

/// Routes that a load balancer and a watchdog ask.
const HEALTH_ROUTES: [&str; 2] = ["/-/healthy", "/-/ready"];

/// Route of the screen in the corridor.
const STATUS_ROUTE: &str = "/status";

/// Routes by which people sign in.
const SIGN_IN_ROUTES: [&str; 3] = ["/login", LINK_PATH, MUNGE_PATH];

/// Prefix of further ones.
const SIGN_IN_PREFIX: &str = "/login/";

/// Prefix of the routes whose answers are streams.
const STREAM_PREFIX: &str = "/live/";

/// A class of requests with places of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestClass {
    /// Health checks.
    Health,
    /// The status page.
    Status,
    /// Signing in.
    SignIn,
    /// The Unix socket.
    Socket,
    /// Administrators.
    Admin,
    /// Pushes of senders with a token.
    Push,
    /// Streams of live pages.
    Stream,
    /// Users and programs that are known.
    SignedIn,
    /// Everybody else.
    Anonymous,
}

/// Name, number of places, and places of one holder, in the order of [`RequestClass`].
const CLASSES: [(&str, usize, usize); 9] = [
    ("health", 64, 32),
    ("status", 64, 32),
    // A class behind one address may sign in at once.
    ("sign_in", 512, 160),
    ("socket", 64, 32),
    ("admin", 64, 48),
    ("push", 256, 128),
    // Each open page of a browser is a stream.
    ("stream", 512, 64),
    ("signed_in", 512, 256),
    ("anonymous", 512, 256),
];

/// Places of all requests.
pub const REQUEST_PLACES: usize = {
    let mut sum = 0;
    let mut at = 0;
    while at < CLASSES.len() {
        sum += CLASSES[at].1;
        at += 1;
    }
    sum
};

impl RequestClass {
    /// The class of a request of `viewer` to `route`, which needs `need`.
    fn of(route: &str, need: Option<Need>, viewer: &Viewer, is_socket: bool) -> Self {
        // The order matters: health checks and sign-ins keep their places when those of all viewers are taken.
        if HEALTH_ROUTES.contains(&route) {
            Self::Health
        } else if route == STATUS_ROUTE {
            Self::Status
        } else if SIGN_IN_ROUTES.contains(&route) || route.starts_with(SIGN_IN_PREFIX) {
            Self::SignIn
        } else if need == Some(Need::Push) {
            Self::Push
        } else if route.starts_with(STREAM_PREFIX) {
            Self::Stream
        } else if viewer.role() == Role::Admin {
            Self::Admin
        } else if is_socket {
            Self::Socket
        } else if viewer.way() == Way::Unknown {
            Self::Anonymous
        } else {
            Self::SignedIn
        }
    }
}

/// The places of all classes.
#[derive(Debug, Clone)]
pub struct RequestPlaces(Arc<[Arc<ClassPlaces>; CLASSES.len()]>);

impl RequestPlaces {
    /// `files` of [`REQUEST_PLACES`] files may be open for requests; all classes get the same share.
    pub fn new(files: usize) -> Self {
        // More files than places do not make more places.
        let files = files.min(REQUEST_PLACES);

        let classes = CLASSES.map(|(class, most, per_holder)| {
            let total = (most * files / REQUEST_PLACES).max(LEAST_PLACES);
            let per_holder = (per_holder * total / most).max(LEAST_PLACES_OF_ONE);
            Arc::new(ClassPlaces::new(class, total, per_holder))
        });
        Self(Arc::new(classes))
    }

    /// The places of each class.
    pub fn classes(&self) -> impl Iterator<Item = Arc<ClassPlaces>> + '_ {
        self.0.iter().cloned()
    }

    /// Adds the places to the requests of the router.
    pub fn layer(self, router: Router) -> Router {
        router.layer(Extension(self))
    }
}

/// Gives a request the place of its class, until it is answered. A request that did not come
/// through a listener of this server needs none.
///
/// # Errors
/// The refusal, if no place is free.
pub(super) fn take_place(
    request: &Request,
    need: Option<Need>,
    viewer: &Viewer,
    peer: Peer,
) -> Result<(), PlaceRefusal> {
    let extensions = request.extensions();
    let (Some(places), Some(connection)) = (
        extensions.get::<RequestPlaces>(),
        extensions.get::<Arc<Connection>>(),
    ) else {
        return Ok(());
    };

    let route = extensions.get::<MatchedPath>();
    let route = route.map_or("", MatchedPath::as_str);
    let class = RequestClass::of(route, need, viewer, peer.is_socket);
    match places.0[class as usize].take(holder_of(viewer, peer)) {
        Ok(place) => {
            connection.hold(place);
            // An import is larger than other requests, and may take longer to arrive.
            if route == IMPORT_PATH {
                connection.upload_within(UPLOAD_TIME);
            }
            Ok(())
        }
        Err(reason) => Err(PlaceRefusal { class, reason }),
    }
}

/// Who takes a place: the user or sender, else the Unix user of a process on this machine, else the
/// address.
pub fn holder_of(viewer: &Viewer, peer: Peer) -> PlaceHolder {
    // Behind one address there may be many users, so the address is the last resort.
    if let Some(user) = viewer.user() {
        PlaceHolder::User(user.into())
    } else if let Some(sender) = viewer.sender_name() {
        PlaceHolder::Sender(sender.into())
    } else if let Some(uid) = peer.uid {
        PlaceHolder::Uid(uid)
    } else {
        PlaceHolder::Address(client_of(peer.address.ip()))
    }
}

/// A request without a place.
#[derive(Debug)]
pub(super) struct PlaceRefusal {
    class: RequestClass,
    reason: NoPlace,
}

impl IntoResponse for PlaceRefusal {
    fn into_response(self) -> Response {
        // Prometheus drops its samples after 429 and repeats them after 503.
        let is_own = matches!(self.reason, NoPlace::Holder { .. });
        let status = if is_own && self.class != RequestClass::Push {
            StatusCode::TOO_MANY_REQUESTS
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        let after = [(header::RETRY_AFTER, RETRY_AFTER)];
        (status, after, format!("{}\n", self.reason)).into_response()
    }
}

/// Registers the metrics of places.
pub fn register_places(registry: &mut Registry, classes: Vec<Arc<ClassPlaces>>) {
    registry.register_collector(Box::new(PlaceCollector(classes)));
}

#[derive(Debug)]
struct PlaceCollector(Vec<Arc<ClassPlaces>>);

impl PlaceCollector {
    fn encode_gauge(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help): (&str, &str),
        value: impl Fn(&ClassPlaces) -> usize,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        self.0.iter().try_for_each(|places| {
            let labels = [("class", places.class)];
            ConstGauge::new(value(places) as i64).encode(family.encode_family(&labels)?)
        })
    }
}

impl Collector for PlaceCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let total = ("takt_server_places", "Places of a class of requests");
        self.encode_gauge(&mut encoder, total, |places| places.total)?;
        let taken = (
            "takt_server_places_taken",
            "Taken places of a class of requests",
        );
        self.encode_gauge(&mut encoder, taken, ClassPlaces::taken)?;

        let help = "Requests refused because all places of their class, or of their user or address, were taken";
        let name = "takt_server_places_refused";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        self.0.iter().try_for_each(|places| {
            let labels = [("class", places.class)];
            ConstCounter::new(places.refused()).encode(family.encode_family(&labels)?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_access::Privacy;

    #[test]
    fn the_class_of_a_request_follows_from_its_route_and_its_viewer() {
        let viewer = |role, way| Viewer::new(role, way, Privacy::Open);
        let unknown = Viewer::anonymous(Privacy::Open);
        let user = viewer(Role::User, Way::Session);
        let admin = viewer(Role::Admin, Way::Token);
        let sender = Viewer::sender("agent", Privacy::Open);
        for (route, need, viewer, is_socket, expected) in [
            (
                "/-/healthy",
                Need::Nothing,
                &unknown,
                false,
                RequestClass::Health,
            ),
            ("/status", Need::SignedIn, &user, true, RequestClass::Status),
            (
                "/api/v1/write",
                Need::Push,
                &sender,
                false,
                RequestClass::Push,
            ),
            // A stream of an administrator is a stream: its place is held for hours.
            (
                "/live/nodes",
                Need::SignedIn,
                &admin,
                false,
                RequestClass::Stream,
            ),
            ("/nodes", Need::SignedIn, &admin, true, RequestClass::Admin),
            ("/nodes", Need::SignedIn, &user, true, RequestClass::Socket),
            (
                "/nodes",
                Need::SignedIn,
                &user,
                false,
                RequestClass::SignedIn,
            ),
            (
                "/login/password",
                Need::Nothing,
                &unknown,
                false,
                RequestClass::SignIn,
            ),
            (
                "/nodes",
                Need::SignedIn,
                &unknown,
                false,
                RequestClass::Anonymous,
            ),
        ] {
            let class = RequestClass::of(route, Some(need), viewer, is_socket);
            assert_eq!(class, expected, "{route}");
        }
    }

    #[test]
    fn few_files_leave_each_class_some_places() {
        let totals = |files| -> Vec<usize> {
            let places = RequestPlaces::new(files);
            places.classes().map(|places| places.total).collect()
        };
        // A quarter of the files is a quarter of each class. With no files at all, each class keeps the least.
        assert_eq!(totals(usize::MAX), CLASSES.map(|(_, total, _)| total));
        assert_eq!(
            totals(REQUEST_PLACES / 4),
            [16, 16, 128, 16, 16, 64, 128, 128, 128]
        );
        assert_eq!(totals(0), [LEAST_PLACES; CLASSES.len()]);
        // One holder never takes a whole class, even of the smallest ones.
        let few = RequestPlaces::new(0);
        assert!(few.classes().all(|one| one.per_holder < one.total));
    }

    #[test]
    fn the_metrics_have_a_series_of_each_class() {
        let mut registry = Registry::default();
        register_places(
            &mut registry,
            RequestPlaces::new(usize::MAX).classes().collect(),
        );

        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
        for line in [
            "takt_server_places{class=\"admin\"} 64",
            "takt_server_places_taken{class=\"admin\"} 0",
            "takt_server_places_refused_total{class=\"admin\"} 0",
        ] {
            assert!(page.contains(line), "{page}");
        }
    }
}
