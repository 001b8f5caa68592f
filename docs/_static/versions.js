// Offers the versions of the site that lie beside each other, by the site's versions.json; pages opened from a disk have none.
{
  const { site, version } = document.currentScript.dataset;
  const here = new URL(document.documentElement.dataset.content_root, location);
  const page = location.href.slice(here.href.length);
  const root = new URL(site || ".", here);
  const folder = (name) => new URL(name === "latest" ? "." : `${name}/`, root);
  const go = async (name) => {
    const same = new URL(page, folder(name));
    const { ok } = await fetch(same, { method: "HEAD" });
    location.assign(ok ? same : new URL("index.html", folder(name)));
  };
  const offer = (names) => {
    if (names.length < 2) return;
    const choice = document.createElement("select");
    choice.setAttribute("aria-label", "Version");
    for (const name of names) choice.add(new Option(name, name, false, name === version));
    choice.onchange = () => go(choice.value);
    document.querySelector(".sidebar-brand").after(choice);
  };
  fetch(new URL("versions.json", root)).then((answer) => answer.json()).then(offer, () => {});
}
