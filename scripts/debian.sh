#!/bin/sh
# Makes sure that the tests have what Python's packages do not bring: a Chromium in which to open the reports, and Java for
# Spark. Where Debian's can be installed (as root, with apt), they are; elsewhere those tests are skipped and say so. Never fails.
missing=""
{ command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null 2>&1 || missing="chromium"
[ -n "$JAVA_HOME" ] || command -v java >/dev/null 2>&1 || missing="$missing default-jre-headless"
[ -z "$missing" ] && exit 0
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing for the tests (once): $missing ..."
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing; } >/dev/null 2>&1 && exit 0
fi
echo "Not here, so the tests that need it are skipped: $missing"
exit 0
