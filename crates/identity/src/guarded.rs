//! A router whose routes have needs.

use axum::Router;
use axum::response::Response;
use axum::routing::MethodRouter;
use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use takt_access::{RouteNeeds, Viewer};

/// Needs of routes, by path.
pub type NeedTable = BTreeMap<String, RouteNeeds>;

/// A request of a browser that is refused because of the role of its user.
#[derive(Debug)]
pub struct RefusedRequest {
    /// Who asked.
    pub viewer: Viewer,
    /// Path of the request.
    pub path: String,
    /// Why it is refused.
    pub reason: String,
}

type Shown = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Shows a person why a request is refused.
#[derive(Clone)]
pub struct RefusedPage(Arc<dyn Fn(RefusedRequest) -> Shown + Send + Sync>);

impl RefusedPage {
    /// A page from the function that makes it.
    pub fn new<F>(show: impl Fn(RefusedRequest) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response> + Send + 'static,
    {
        Self(Arc::new(move |request| Box::pin(show(request))))
    }

    /// Answers a request.
    pub async fn show(&self, request: RefusedRequest) -> Response {
        (self.0)(request).await
    }
}

impl fmt::Debug for RefusedPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RefusedPage")
    }
}

/// A router whose routes have needs. A route without needs cannot be added.
#[derive(Debug)]
pub struct GuardedRouter<S = ()> {
    router: Router<S>,
    needs: NeedTable,
    refused: Option<RefusedPage>,
}

impl<S> Default for GuardedRouter<S>
where
    S: Clone + Send + Sync + 'static,
{
    fn default() -> Self {
        Self::new()
    }
}

impl<S> GuardedRouter<S>
where
    S: Clone + Send + Sync + 'static,
{
    /// Returns a router without routes.
    pub fn new() -> Self {
        Self {
            router: Router::new(),
            needs: BTreeMap::new(),
            refused: None,
        }
    }

    /// Returns a router of another crate with the needs of its routes. A route that is missing in `needs` refuses every request.
    pub fn of<'a>(
        router: Router<S>,
        needs: impl IntoIterator<Item = &'a (&'a str, RouteNeeds)>,
    ) -> Self {
        let needs = needs.into_iter();
        Self {
            router,
            needs: needs
                .map(|(path, needs)| ((*path).to_owned(), *needs))
                .collect(),
            refused: None,
        }
    }

    /// Adds a route with its needs. Two routes of one path, with different methods, are joined.
    #[must_use]
    pub fn route(mut self, path: &str, needs: RouteNeeds, handler: MethodRouter<S>) -> Self {
        self.join(path, needs);
        self.router = self.router.route(path, handler);
        self
    }

    /// Notes the needs of a route. A second entry must not replace the first: its methods would then be guarded by the
    /// needs of the other route.
    fn join(&mut self, path: &str, needs: RouteNeeds) {
        let joined = match self.needs.get(path) {
            Some(known) => known.joined(needs),
            None => needs,
        };
        self.needs.insert(path.to_owned(), joined);
    }

    /// Adds the routes of another router. Routes of one path are joined, as in [`route`](Self::route).
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        for (path, needs) in &other.needs {
            self.join(path, *needs);
        }
        self.router = self.router.merge(other.router);
        self.refused = self.refused.or(other.refused);
        self
    }

    /// Sets what browsers get instead of a refusal in JSON.
    #[must_use]
    pub fn refused(mut self, page: RefusedPage) -> Self {
        self.refused = Some(page);
        self
    }

    /// Changes the inner router, for its layers.
    #[must_use]
    pub fn map(self, change: impl FnOnce(Router<S>) -> Router<S>) -> Self {
        Self {
            router: change(self.router),
            needs: self.needs,
            refused: self.refused,
        }
    }

    /// Sets the state of the handlers.
    pub fn with_state<T>(self, state: S) -> GuardedRouter<T> {
        GuardedRouter {
            router: self.router.with_state(state),
            needs: self.needs,
            refused: self.refused,
        }
    }

    /// Returns the needs of the routes.
    pub fn needs(&self) -> &NeedTable {
        &self.needs
    }

    /// Returns the router, the needs of its routes, and what browsers get instead of a refusal in JSON.
    pub fn into_parts(self) -> (Router<S>, NeedTable, Option<RefusedPage>) {
        (self.router, self.needs, self.refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::{get, post};
    use takt_access::{Need, Role};

    #[test]
    fn a_merged_path_keeps_the_needs_of_both_routes() {
        let read = || {
            GuardedRouter::<()>::new().route(
                "/x",
                RouteNeeds::read(Need::SignedIn),
                get(|| async {}),
            )
        };
        let change = || {
            GuardedRouter::<()>::new().route(
                "/x",
                RouteNeeds::change(Role::Admin),
                post(|| async {}),
            )
        };
        let expected = RouteNeeds::read(Need::SignedIn).joined(RouteNeeds::change(Role::Admin));

        for merged in [read().merge(change()), change().merge(read())] {
            assert_eq!(merged.needs()["/x"], expected);
        }
    }
}
