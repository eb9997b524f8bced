// Who are you? In the place of a page, until somebody has logged in.

import { send } from "../api.js";
import { h, show } from "../dom.js";
import { pause, trouble } from "../live.js";
import { failure } from "../ui.js";

/** Loads the document anew: nothing is left of what somebody else was shown. */
const fresh = () => location.reload();

export async function logout() {
  await send("POST", "../../logout");
  fresh();
}

export default function login({ root, signal }) {
  pause(signal);
  trouble("");
  const told = h("div", { role: "alert" });
  const name = h("input", { name: "name", autocomplete: "username", autocapitalize: "none", required: true });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
  const button = h("button", null, "Log in");
  const enter = async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      await send("POST", "../../login", { json: { name: name.value, password: password.value } });
      fresh();
    } catch (error) {
      show(told, failure(error));
      button.disabled = false;
      password.value = "";
      password.focus();
    }
  };
  show(root, h("h1", null, "Log in"), told, h("form", { class: "bar", onsubmit: enter }, h("label", null, "Name", name), h("label", null, "Password", password), button));
  name.focus();
}
