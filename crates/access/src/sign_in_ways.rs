/// Ways to sign in with a browser, besides the link of `takt login`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SignInWays {
    /// With a name and a password.
    pub passwords: bool,
    /// With OpenID Connect; the name of the provider.
    pub oidc: Option<String>,
}
