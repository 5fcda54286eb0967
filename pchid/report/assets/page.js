// The page around its parts: colours, contents, copying, animations, printing.

/* Colours: as the system has them, until the reader chooses. */
{
  const button = document.getElementById("theme");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const stored = (() => {
    try {
      return localStorage.getItem("pchid-theme");
    } catch {
      return null; // a browser may forbid files to store anything
    }
  })();
  const current = () => document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light");
  const label = () => {
    button.textContent = current() === "dark" ? "Light colours" : "Dark colours";
  };
  if (stored === "dark" || stored === "light") document.documentElement.dataset.theme = stored;
  button.hidden = false;
  button.onclick = () => {
    document.documentElement.dataset.theme = current() === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("pchid-theme", current());
    } catch {
      // then it holds until the page is closed
    }
    label();
  };
  dark.addEventListener("change", label);
  label();
}

/* Contents: beside the text where there is room, folded above it where there is not. */
{
  const wide = window.matchMedia("(min-width: 70rem)");
  const contents = document.getElementById("contents");
  const fold = () => {
    contents.open = wide.matches;
  };
  wide.addEventListener("change", fold);
  fold();
  for (const link of contents.querySelectorAll("a")) link.addEventListener("click", fold);
  const links = new Map([...contents.querySelectorAll("a")].map((link) => [link.getAttribute("href").slice(1), link]));
  const watcher = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        for (const link of links.values()) link.removeAttribute("aria-current");
        links.get(entry.target.id)?.setAttribute("aria-current", "true");
      }
    },
    { rootMargin: "-20% 0px -75% 0px" },
  );
  for (const id of links.keys()) {
    const target = document.getElementById(id);
    if (target) watcher.observe(target);
  }
}

/* Commands to copy. */
for (const button of document.querySelectorAll("button.copy")) {
  button.onclick = async () => {
    const words = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(words.textContent);
      button.textContent = "Copied";
      speak("Copied");
    } catch {
      // Not allowed here: leave the words selected, so that one key copies them.
      getSelection().selectAllChildren(words);
      button.textContent = "Selected";
      speak("The command is selected");
    }
    setTimeout(() => {
      button.textContent = "Copy";
    }, 2000);
  };
}

/* Animations: nothing moves before someone asks for it. */
for (const figure of document.querySelectorAll(".rollout")) {
  const picture = figure.querySelector("img");
  const button = figure.querySelector("button");
  const still = picture.src;
  const name = button.querySelector(".unseen");
  button.onclick = () => {
    const playing = button.getAttribute("aria-pressed") !== "true";
    picture.src = playing ? figure.dataset.gif : still;
    button.setAttribute("aria-pressed", String(playing));
    button.replaceChildren(playing ? "Stop" : "Play", name);
  };
}

/* On paper, nothing is folded away. */
{
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("main details:not([open])")];
    for (const part of folded) part.open = true;
  });
  addEventListener("afterprint", () => {
    for (const part of folded) part.open = false;
  });
}
