//! A router whose routes have needs.

use axum::Router;
use axum::routing::MethodRouter;
use std::collections::BTreeMap;
use takt_access::RouteNeeds;

/// Needs of routes, by path.
pub type NeedTable = BTreeMap<String, RouteNeeds>;

/// A router whose routes have needs. A route without needs cannot be added.
#[derive(Debug)]
pub struct GuardedRouter<S = ()> {
    router: Router<S>,
    needs: NeedTable,
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
        }
    }

    /// Adds a route with its needs. Two routes of one path, with different methods, are joined.
    #[must_use]
    pub fn route(mut self, path: &str, needs: RouteNeeds, handler: MethodRouter<S>) -> Self {
        // A second entry must not replace the first: its methods would then be guarded by the needs of the other route.
        let joined = match self.needs.get(path) {
            Some(known) => known.joined(needs),
            None => needs,
        };
        self.needs.insert(path.to_owned(), joined);
        self.router = self.router.route(path, handler);
        self
    }

    /// Adds the routes of another router.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.needs.extend(other.needs);
        self.router = self.router.merge(other.router);
        self
    }

    /// Changes the inner router, for its layers.
    #[must_use]
    pub fn map(self, change: impl FnOnce(Router<S>) -> Router<S>) -> Self {
        Self {
            router: change(self.router),
            needs: self.needs,
        }
    }

    /// Sets the state of the handlers.
    pub fn with_state<T>(self, state: S) -> GuardedRouter<T> {
        GuardedRouter {
            router: self.router.with_state(state),
            needs: self.needs,
        }
    }

    /// Returns the needs of the routes.
    pub fn needs(&self) -> &NeedTable {
        &self.needs
    }

    /// Returns the router and the needs of its routes.
    pub fn into_parts(self) -> (Router<S>, NeedTable) {
        (self.router, self.needs)
    }
}
