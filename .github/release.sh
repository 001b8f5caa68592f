#!/usr/bin/env bash
# Builds and checks a release in build/dist; uploads nothing: `make release`. RELEASING.md beside this file is the page about it.
set -euo pipefail
unset PYTHONPATH
cd "$(dirname "$0")/.."
refuse() { echo "release: $*" >&2; exit 1; }

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
[ -z "$(git status --porcelain)" ] || refuse "expected a clean work tree: commit or remove what \`git status\` lists"
grep -q "^version: $version\$" CITATION.cff || refuse "CITATION.cff: expected version: $version, as in pyproject.toml"
grep -m1 '^## ' CHANGELOG.md | grep -q "^## $version\b" || refuse "CHANGELOG.md: expected $version as its first heading"
tagged=$(git rev-parse -q --verify "refs/tags/v$version^{commit}" || true)
[ -z "$tagged" ] || [ "$tagged" = "$(git rev-parse HEAD)" ] || refuse "the tag v$version is another commit: raise the version"

rm -rf build/dist build/release
mkdir -p build/dist build/release/source
git archive HEAD | tar -x -C build/release/source
"${PYTHON:-python3}" -m venv build/release/tools
build/release/tools/bin/pip install --quiet build twine
# The wheel is built from the source distribution, so that this has all that the wheel needs.
build/release/tools/bin/pyproject-build --outdir build/dist build/release/source >build/release/build.log || refuse "see build/release/build.log"
build/release/tools/bin/twine check --strict build/dist/*
(cd build/dist && sha256sum -- * >../SHA256SUMS)

# A first sum, from the wheel alone.
"${PYTHON:-python3}" -m venv build/release/installed
installed=$PWD/build/release/installed/bin
SECONDS=0
"$installed/pip" install --quiet "$(echo "$PWD"/build/dist/*.whl)[demo]"
echo "installed in $SECONDS s, $(du -sm "$installed/.." | cut -f1) MB"
SECONDS=0
(cd build/release && "$installed/netsum" allreduce --workers 2 --sizes 64KiB --dtypes float32)
echo "first sum after $SECONDS s"
"$installed/netsum" --version | head -1 | grep -qx "netsum $version" || refuse "the wheel has another version than $version"

cat build/SHA256SUMS
echo "netsum $version is built and checked in build/dist; nothing was uploaded. To publish it:"
echo "  git tag -s v$version -m 'netsum $version' && git push origin v$version"
