// A provider of OpenID Connect (oidc-provider, certified) that signs in whomever a file names, without asking.
//
// Usage: node provider.mjs PORT REDIRECT_URI STATE_FILE. The file is JSON: {"user": …, "groups": […]}; it is read at each
// sign-in, so that a test can change the user and the groups meanwhile.
import { randomUUID, webcrypto } from "node:crypto";
import { readFileSync } from "node:fs";
import Provider from "oidc-provider";

const [port, redirectUri, stateFile] = process.argv.slice(2);
const state = () => JSON.parse(readFileSync(stateFile, "utf8"));
const issuer = `http://127.0.0.1:${port}`;

// A new key at each start. `KeyObject.export` of an RSA key as JWK can wait forever in Node.js 20, so that this is WebCrypto's.
const algorithm = { name: "RSASSA-PKCS1-v1_5", modulusLength: 2048, publicExponent: new Uint8Array([1, 0, 1]), hash: "SHA-256" };
const { privateKey } = await webcrypto.subtle.generateKey(algorithm, true, ["sign", "verify"]);
const { kty, n, e, d, p, q, dp, dq, qi } = await webcrypto.subtle.exportKey("jwk", privateKey);
const key = { kty, n, e, d, p, q, dp, dq, qi, kid: randomUUID(), alg: "RS256", use: "sig" };

const provider = new Provider(issuer, {
  jwks: { keys: [key] },
  clients: [
    {
      client_id: "takt",
      client_secret: "a secret: with + and %",
      redirect_uris: [redirectUri],
      response_types: ["code"],
      grant_types: ["authorization_code"],
    },
    // Another program, whose answers an attacker leads to Takt.
    {
      client_id: "wiki",
      client_secret: "another secret",
      redirect_uris: [redirectUri],
      response_types: ["code"],
      grant_types: ["authorization_code"],
    },
  ],
  pkce: { required: () => true },
  scopes: ["openid", "profile"],
  // Claims of scopes are at the userinfo address only, as the standard has it.
  claims: { openid: ["sub"], profile: ["preferred_username", "groups"] },
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, preferred_username: state().user, groups: state().groups ?? [] }),
  }),
  interactions: { url: (_, interaction) => `/automatic/${interaction.uid}` },
  features: { devInteractions: { enabled: false } },
  loadExistingGrant: async (ctx) => {
    const grant = new ctx.oidc.provider.Grant({
      clientId: ctx.oidc.client.clientId,
      accountId: ctx.oidc.session.accountId,
    });
    grant.addOIDCScope("openid profile");
    await grant.save();
    return grant;
  },
  cookies: { keys: ["test"] },
});

provider.use(async (ctx, next) => {
  if (!ctx.path.startsWith("/automatic/")) {
    return next();
  }
  const login = { accountId: `id-of-${state().user}` };
  await provider.interactionFinished(ctx.req, ctx.res, { login }, { mergeWithLastSubmission: false });
  ctx.respond = false;
});

provider.listen(Number(port), "127.0.0.1", () => console.log("listening"));
