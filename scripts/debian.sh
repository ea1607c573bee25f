#!/bin/sh
# Makes sure that the tests have what Python's packages do not bring: a Chromium in which to open the reports, Java for Spark, and
# a HAProxy and an sshd for the recipes of docs/firewalls.md. Where Debian's can be installed (as root, with apt), they are; elsewhere those tests are skipped and say so. Never fails.
missing=""
{ command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null 2>&1 || missing="chromium"
[ -n "$JAVA_HOME" ] || command -v java >/dev/null 2>&1 || missing="$missing default-jre-headless"
[ -x /usr/sbin/haproxy ] || command -v haproxy >/dev/null 2>&1 || missing="$missing haproxy"
[ -x /usr/sbin/sshd ] || command -v sshd >/dev/null 2>&1 || missing="$missing openssh-server"
command -v ssh >/dev/null 2>&1 || missing="$missing openssh-client"
[ -z "$missing" ] && exit 0
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing for the tests (once): $missing ..."
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing; } >/dev/null 2>&1 && exit 0
fi
echo "Not here, so the tests that need it are skipped: $missing"
exit 0
