#!/usr/bin/env bash
# book_built_test.sh SOURCE: scripts/book.sh builds site and PDF without a warning and without a dead link; where Chromium is
# installed, no page has an error in its console, and search, dark mode, phone width and the copy buttons work.
set -euo pipefail
source=$1
for package in python3-sphinx python3-myst-parser furo python3-sphinx-copybutton weasyprint; do
  [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null)" = "ii " ] || { echo "no $package here"; exit 77; }
done
look=""
command -v chromium >/dev/null && look=--look
cd "$source"
rm -rf build/book
scripts/book.sh $look
[ "$(find build/book/site -maxdepth 2 -name '*.html' | wc -l)" -ge 60 ] || { echo "expected 60 pages or more"; exit 1; }
[ "$(head -c 5 build/book/athanor.pdf)" = "%PDF-" ] || { echo "no PDF"; exit 1; }
[ "$(stat -c %s build/book/athanor.pdf)" -gt 500000 ] || { echo "the PDF is too short"; exit 1; }
for page in examples/course/stage*/text.md; do
  slides=build/book/site/slides/$(basename "$(dirname "$page")").html
  [ "$(grep -c '<section class="slide">' "$slides")" -ge 6 ] || { echo "$slides: expected six slides or more"; exit 1; }
done
