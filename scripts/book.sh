#!/usr/bin/env bash
# Builds the book from docs/: build/book/site/index.html, with the slides of the course in its folder slides, and
# build/book/athanor.pdf. Sphinx with MyST and furo makes the site, WeasyPrint the PDF; all are Debian packages, which it installs
# where they are missing. Downloads nothing else.
#   --site, --pdf   only one of the two
#   --look          opens pages in headless Chromium, fails on an error in its console, and saves build/book/look/*.png
# Ends with code 1 on a warning of Sphinx, a dead link or a page with an error.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

site=yes pdf=yes look=""
for flag; do
  case $flag in
    --site) pdf="" ;;
    --pdf) site="" ;;
    --look) look=yes ;;
    -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) fail 2 "book.sh: no such flag: $flag (--help lists them)" ;;
  esac
done
[ "$site$pdf" ] || fail 2 "book.sh: --site and --pdf exclude each other; without both, it builds both"
"$root/scripts/install_packages.sh" python3-sphinx python3-myst-parser furo python3-sphinx-copybutton weasyprint ${look:+chromium}
cd "$root"
export PYTHONDONTWRITEBYTECODE=1
out=build/book
mkdir -p "$out"

docs/book/order.py --check || fail 1 "book.sh: the chapters' heads or their list are wrong"
sphinx() { # sphinx BUILDER SOURCE TARGET [OPTION...]: every warning is an error
  /usr/bin/python3 -m sphinx -q -W --keep-going -j 1 -b "$1" -d "$out/doctrees-$1" "${@:4}" "$2" "$3" ||
    fail 1 "book.sh: Sphinx ends with warnings"
}
# Debian 12's furo takes a style sheet from the root of a web server, its script from two modules that were not joined, and has
# lost the rules for a system that prefers dark. Pages opened as files need all of it in place.
stand_alone() { # stand_alone STATIC
  local style=$1/styles/furo.css shared=/javascript/normalize.css/normalize.css script=$1/scripts/furo.js
  if grep -qF "$shared" "$style"; then
    cp "/usr/share$shared" "$1/styles/normalize.css"
    sed -i "s|$shared|normalize.css|" "$style"
  fi
  if ! grep -q 'prefers-color-scheme: *dark' "$style"; then
    { echo '@media screen and (prefers-color-scheme: dark) {'
      sed -n '/^ *body\[data-theme="dark"\] {/,/}/p' "$style" | sed 's/body\[data-theme="dark"\]/body:not([data-theme="light"])/'
      echo '}'; } >"$style.dark"
    cat "$style.dark" >>"$style" && rm "$style.dark"
  fi
  if grep -q '^import Gumshoe from' "$script"; then
    { cat "$1/scripts/gumshoe-patched.js"; sed '/^import Gumshoe from/d' "$script"; } >"$script.joined"
    mv "$script.joined" "$script"
  fi
}
if [ "$site" ]; then
  docs/book/stage.py "$out/pages" site
  rm -rf "$out/site"
  sphinx html "$out/pages" "$out/site"
  stand_alone "$out/site/_static"
  /usr/bin/python3 docs/book/slides.py "$out/site/slides" >/dev/null || fail 1 "book.sh: no slides"
  docs/book/links.py "$out/site" || fail 1 "book.sh: dead links"
  say "$out/site/index.html"
fi
if [ "$pdf" ]; then
  docs/book/stage.py "$out/print" print
  rm -rf "$out/single"
  sphinx singlehtml "$out/print" "$out/single" -D root_doc=book -D html_theme=basic -D html_permalinks= -D html_css_files=
  /usr/bin/python3 docs/book/print.py "$out/single/book.html" "$out/athanor.pdf" || fail 1 "book.sh: no PDF"
  say "$out/athanor.pdf"
fi
if [ "$look" ]; then
  docs/book/look.py "$out/site" "$out/look" || fail 1 "book.sh: a page has an error"
fi
