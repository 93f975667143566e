//! ID tokens: signatures by the provider's keys, and claims.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use takt_model::UnixTime;

/// Seconds by which the clocks of the provider and of this machine may differ.
const GRACE_SECONDS: i64 = 60;

/// Why an ID token is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokenError {
    /// The text is not a signed token.
    #[error("the ID token is malformed")]
    Malformed,
    /// No key of the provider has the identifier of the token's key.
    #[error("the provider has no key {0:?}")]
    UnknownKey(String),
    /// The algorithm is not one of the key's.
    #[error("the ID token has the algorithm {0:?}, which its key does not have")]
    Algorithm(String),
    /// The signature is wrong.
    #[error("the signature of the ID token is wrong")]
    Signature,
    /// A claim is wrong.
    #[error("the claim {0} of the ID token is wrong")]
    Claim(&'static str),
}

/// Keys of a provider.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct KeySet {
    keys: Vec<Value>,
}

/// A key of a provider, in JSON's form (RFC 7517).
#[derive(Debug, Clone, Deserialize)]
struct Key {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

/// The expected claims of an ID token.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected<'a> {
    pub issuer: &'a str,
    pub client_id: &'a str,
    pub nonce: &'a str,
    /// Current time.
    pub now: UnixTime,
}

impl KeySet {
    /// Returns the claims of a token whose signature is right.
    ///
    /// # Errors
    /// If the token is malformed, or no key has signed it.
    pub fn verify(&self, token: &str) -> Result<Value, TokenError> {
        // The signature covers the first two parts as they were sent, so they are not decoded and encoded first.
        let (signed, sent) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;
        let header: Header = json(header)?;
        // Extensions that must be understood: none is.
        if header.crit.is_some() {
            return Err(TokenError::Malformed);
        }

        let sent = bytes(sent)?;
        // Without `kid`, every key may have signed. All are tried, and the last refusal is reported.
        let candidates: Vec<Key> = self.signing_keys(header.kid.as_deref()).collect();
        if candidates.is_empty() {
            return Err(TokenError::UnknownKey(header.kid.unwrap_or_default()));
        }
        let mut error = TokenError::Signature;
        for key in candidates {
            match key.verify(&header.alg, signed.as_bytes(), &sent) {
                Ok(()) => return json(claims),
                Err(refused) => error = refused,
            }
        }
        Err(error)
    }

    fn signing_keys(&self, kid: Option<&str>) -> impl Iterator<Item = Key> {
        let keys = self.keys.iter();
        // A key of an unknown kind is no reason to refuse the others.
        keys.filter_map(|key| Key::deserialize(key).ok())
            .filter(|key| {
                key.purpose
                    .as_deref()
                    .is_none_or(|purpose| purpose == "sig")
            })
            .filter(move |key| kid.is_none_or(|kid| key.kid.as_deref() == Some(kid)))
    }
}

impl Key {
    /// Checks a signature. The kind of the key decides which algorithms are possible, so that a
    /// public key is never taken for the secret of a keyed hash, and `none` is no algorithm.
    fn verify(&self, algorithm: &str, message: &[u8], sent: &[u8]) -> Result<(), TokenError> {
        let refused = || TokenError::Algorithm(algorithm.to_owned());
        // A key that names its algorithm is used with no other (RFC 7517, 4.4).
        if self.alg.as_deref().is_some_and(|own| own != algorithm) {
            return Err(refused());
        }

        let part = |part: &Option<String>| bytes(part.as_deref().unwrap_or_default());
        let verified = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => {
                let parameters = match algorithm {
                    "RS256" => &signature::RSA_PKCS1_2048_8192_SHA256,
                    "RS384" => &signature::RSA_PKCS1_2048_8192_SHA384,
                    "RS512" => &signature::RSA_PKCS1_2048_8192_SHA512,
                    "PS256" => &signature::RSA_PSS_2048_8192_SHA256,
                    "PS384" => &signature::RSA_PSS_2048_8192_SHA384,
                    "PS512" => &signature::RSA_PSS_2048_8192_SHA512,
                    _ => return Err(refused()),
                };
                let key = RsaPublicKeyComponents {
                    n: part(&self.n)?,
                    e: part(&self.e)?,
                };
                key.verify(parameters, message, sent)
            }
            // ECDSA signatures in a token are of fixed length (RFC 7518, 3.4), and the point is uncompressed: the
            // byte 4.
            ("EC", Some(curve)) => {
                let parameters = match (curve, algorithm) {
                    ("P-256", "ES256") => &signature::ECDSA_P256_SHA256_FIXED,
                    ("P-384", "ES384") => &signature::ECDSA_P384_SHA384_FIXED,
                    _ => return Err(refused()),
                };
                let point = [vec![4], part(&self.x)?, part(&self.y)?].concat();
                UnparsedPublicKey::new(parameters, point).verify(message, sent)
            }
            ("OKP", Some("Ed25519")) if matches!(algorithm, "EdDSA" | "Ed25519") => {
                UnparsedPublicKey::new(&signature::ED25519, part(&self.x)?).verify(message, sent)
            }
            _ => return Err(refused()),
        };
        verified.map_err(|_| TokenError::Signature)
    }
}

/// Checks the claims of an ID token (OpenID Connect Core, 3.1.3.7).
///
/// # Errors
/// Names the first claim that is wrong.
pub(super) fn check(claims: &Value, expected: Expected<'_>) -> Result<(), TokenError> {
    let claim = |name: &str| claims[name].as_str();
    let is = |name: &'static str, is_right: bool| {
        if is_right {
            Ok(())
        } else {
            Err(TokenError::Claim(name))
        }
    };
    is("iss", claim("iss") == Some(expected.issuer))?;

    let own = expected.client_id;
    let audiences = match &claims["aud"] {
        // An audience that is no text is one that Takt does not know.
        Value::Array(several) => several
            .iter()
            .map(|audience| audience.as_str().unwrap_or_default())
            .collect(),
        one => one.as_str().into_iter().collect::<Vec<_>>(),
    };
    // A token for another client of the same provider must not sign in here.
    is("aud", audiences.contains(&own))?;

    // With several audiences, `azp` says which one asked for the token.
    let party = claim("azp");
    is("azp", party.is_none_or(|party| party == own))?;
    is("azp", audiences.len() == 1 || party.is_some())?;

    let time = |name: &str| {
        claims[name]
            .as_f64()
            .map(|seconds| UnixTime(seconds as i64))
    };

    // The clocks of two machines differ a little, so each limit is widened by a minute.
    is(
        "exp",
        time("exp").is_some_and(|end| expected.now < end + GRACE_SECONDS),
    )?;
    let has_begun = |at: UnixTime| at <= expected.now + GRACE_SECONDS;
    is("iat", time("iat").is_some_and(has_begun))?;
    is("nbf", time("nbf").is_none_or(has_begun))?;
    // The nonce belongs to the browser that has begun, so an ID token of another sign-in is refused.
    is("nonce", claim("nonce") == Some(expected.nonce))?;
    is(
        "sub",
        claim("sub").is_some_and(|subject| !subject.is_empty()),
    )
}

fn bytes(text: &str) -> Result<Vec<u8>, TokenError> {
    BASE64_URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|_| TokenError::Malformed)
}

fn json<T>(part: &str) -> Result<T, TokenError>
where
    T: DeserializeOwned,
{
    serde_json::from_slice(&bytes(part)?).map_err(|_| TokenError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
    use serde_json::json;

    const NOW: UnixTime = UnixTime(1_800_000_000);

    const EXPECTED: Expected<'_> = Expected {
        issuer: "https://idp.example",
        client_id: "takt",
        nonce: "n-1",
        now: NOW,
    };

    fn claims() -> Value {
        json!({
            "iss": "https://idp.example",
            "aud": "takt",
            "sub": "17",
            "nonce": "n-1",
            "exp": NOW + 300,
            "iat": NOW,
            "preferred_username": "alice",
        })
    }

    fn encoded(bytes: impl AsRef<[u8]>) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(bytes)
    }

    struct Provider {
        key: EcdsaKeyPair,
        keys: KeySet,
    }

    fn provider() -> Provider {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let file = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(algorithm, file.as_ref(), &random).unwrap();
        let point = key.public_key().as_ref();
        let keys = json!({
            "keys": [
                // Keys that must not be used: one of a keyed hash, and one for encryption under the same name.
                {"kty": "oct", "kid": "secret", "k": "c2VjcmV0"},
                {
                    "kty": "EC",
                    "crv": "P-256",
                    "kid": "1",
                    "use": "enc",
                    "x": "",
                    "y": "",
                },
                {
                    "kty": "EC",
                    "crv": "P-256",
                    "kid": "1",
                    "use": "sig",
                    "x": encoded(&point[1..33]),
                    "y": encoded(&point[33..]),
                },
            ],
        });
        Provider {
            keys: serde_json::from_value(keys).unwrap(),
            key,
        }
    }

    impl Provider {
        fn sign(&self, header: &Value, claims: &Value) -> String {
            let header = encoded(header.to_string());
            let signed = format!("{header}.{}", encoded(claims.to_string()));
            let made = self.key.sign(&SystemRandom::new(), signed.as_bytes());
            format!("{signed}.{}", encoded(made.unwrap()))
        }
    }

    #[test]
    fn only_the_providers_key_signs() {
        let idp = provider();

        let header = json!({ "alg": "ES256", "kid": "1" });
        let token = idp.sign(&header, &claims());
        assert_eq!(idp.keys.verify(&token), Ok(claims()));
        // A provider with one key need not name it.
        let without_kid = idp.sign(&json!({ "alg": "ES256" }), &claims());
        assert_eq!(idp.keys.verify(&without_kid), Ok(claims()));

        let other = provider().sign(&header, &claims());
        assert_eq!(idp.keys.verify(&other), Err(TokenError::Signature));

        let mut admin = claims();
        admin["preferred_username"] = "anna".into();
        let parts: Vec<&str> = token.split('.').collect();
        let changed = format!("{}.{}.{}", parts[0], encoded(admin.to_string()), parts[2]);
        assert_eq!(idp.keys.verify(&changed), Err(TokenError::Signature));

        let unknown = idp.sign(&json!({ "alg": "ES256", "kid": "2" }), &claims());
        assert_eq!(
            idp.keys.verify(&unknown),
            Err(TokenError::UnknownKey("2".to_owned()))
        );
    }

    #[test]
    fn the_algorithm_is_the_keys() {
        let idp = provider();
        let body = encoded(claims().to_string());
        // The names of no algorithm, of keyed hashes, of other kinds of keys, and of none at all.
        for algorithm in ["none", "None", "HS256", "RS256", "ES384", "EdDSA", ""] {
            let header = json!({ "alg": algorithm, "kid": "1" });
            let refused = Err(TokenError::Algorithm(algorithm.to_owned()));
            assert_eq!(idp.keys.verify(&idp.sign(&header, &claims())), refused);
            // The signature part is empty, as `none` would have it.
            let bare = format!("{}.{body}.", encoded(header.to_string()));
            assert_eq!(idp.keys.verify(&bare), refused, "without a signature");
        }

        // The public key as the secret of a keyed hash.
        let header = encoded(json!({ "alg": "HS256", "kid": "1" }).to_string());
        let signed = format!("{header}.{body}");
        let public = idp.key.public_key().as_ref();
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, public);
        let mark = ring::hmac::sign(&key, signed.as_bytes());
        let forged = format!("{signed}.{}", encoded(mark));
        assert!(matches!(
            idp.keys.verify(&forged),
            Err(TokenError::Algorithm(_))
        ));
        // A key inside the token is not looked at; a key of a keyed hash is not a key here.
        let header = json!({ "alg": "HS256", "kid": "secret" });
        assert!(idp.keys.verify(&idp.sign(&header, &claims())).is_err());

        // An extension that changes how the payload is read: without knowing it, the signature proves something else.
        let critical = json!({
            "alg": "ES256",
            "kid": "1",
            "crit": ["b64"],
            "b64": false,
        });
        let token = idp.sign(&critical, &claims());
        assert_eq!(idp.keys.verify(&token), Err(TokenError::Malformed));

        for text in ["", "a", "a.b", "a.b.c", "..", "a.b.c.d"] {
            assert!(idp.keys.verify(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ed25519_keys_sign_too() {
        let file = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let key = Ed25519KeyPair::from_pkcs8(file.as_ref()).unwrap();
        let keys = json!({
            "keys": [{
                "kty": "OKP",
                "crv": "Ed25519",
                "alg": "EdDSA",
                "x": encoded(key.public_key()),
            }],
        });
        let keys: KeySet = serde_json::from_value(keys).unwrap();
        let header = encoded(r#"{"alg":"EdDSA"}"#);
        let signed = format!("{header}.{}", encoded(claims().to_string()));
        let token = format!("{signed}.{}", encoded(key.sign(signed.as_bytes())));
        assert_eq!(keys.verify(&token), Ok(claims()));
    }

    #[test]
    fn each_wrong_claim_is_refused() {
        assert_eq!(check(&claims(), EXPECTED), Ok(()));
        let null = Value::Null;
        for (name, value) in [
            // Issuers are compared exactly: a slash more is another issuer.
            ("iss", json!("https://idp.example/")),
            ("iss", json!("https://evil.example")),
            ("iss", null.clone()),
            ("aud", json!("other")),
            ("aud", json!([])),
            ("aud", null.clone()),
            // The first second behind the grace, on each side.
            ("exp", json!(NOW - 60)),
            ("exp", json!("never")),
            ("exp", null.clone()),
            ("iat", json!(NOW + 61)),
            ("iat", null.clone()),
            ("nbf", json!(NOW + 61)),
            ("nonce", json!("n-2")),
            ("nonce", json!("")),
            ("nonce", null.clone()),
            ("azp", json!("other")),
            ("sub", json!("")),
            ("sub", null),
        ] {
            let mut claims = claims();
            claims[name] = value.clone();
            assert_eq!(
                check(&claims, EXPECTED),
                Err(TokenError::Claim(name)),
                "{name}: {value}"
            );
        }

        let mut two = claims();
        // Two audiences without `azp` do not say who has asked.
        two["aud"] = json!(["takt", "other"]);
        assert_eq!(check(&two, EXPECTED), Err(TokenError::Claim("azp")));
        two["azp"] = json!("takt");
        assert_eq!(check(&two, EXPECTED), Ok(()));
        // An audience of another type counts as a second one, so it cannot hide the need for `azp`.
        for others in [
            json!(["takt", 5]),
            json!(["takt", null]),
            json!(["takt", {}]),
        ] {
            let mut odd = claims();
            odd["aud"] = others.clone();
            assert_eq!(
                check(&odd, EXPECTED),
                Err(TokenError::Claim("azp")),
                "{others}"
            );
        }
    }
}
