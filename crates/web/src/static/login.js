// Fills the form of /login with the code in the fragment, and shows whom the code signs in.
"use strict";
const form = document.getElementById("sign-in");
const code = location.hash.slice(1);
if (form && code) {
  history.replaceState(null, "", "/login");
  form.elements.code.value = code;
  const said = document.getElementById("sign-in-as");
  fetch("/login/user", { method: "POST", body: new URLSearchParams({ code }) })
    .then((answer) => (answer.ok ? answer.json() : Promise.reject()))
    .then(({ user }) => {
      said.textContent = `This link signs this browser in as ${user}. Is that you?`;
      form.querySelector("button").textContent = `Sign in as ${user}`;
    })
    .catch(() => {
      said.textContent = "The link is unknown, used or older than two minutes. Run takt login again.";
    });
}
