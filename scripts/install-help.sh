#!/usr/bin/env bash
# Installs the manual pages and the completion scripts of the command below PREFIX/share, or removes
# them: install-help.sh install COMMAND | install-help.sh uninstall. Does nothing if COMMAND is not
# built: `make install` builds only libraries. Environment: PREFIX, DESTDIR.
set -euo pipefail

share="${DESTDIR:-}$PREFIX/share"
bash_script=$share/bash-completion/completions/evermap
zsh_script=$share/zsh/site-functions/_evermap
fish_script=$share/fish/vendor_completions.d/evermap.fish

case "${1:-} $#" in
    "install 2")
        command=$2
        if ! "$command" generate --help >/dev/null 2>&1; then
            echo "no manual pages and completion scripts: build the command with \`make build\` first"
            exit 0
        fi
        stage=$(mktemp -d)
        trap 'rm -rf "$stage"' EXIT
        "$command" generate man "$stage"
        install -d "$share/man/man1"
        install -m 644 "$stage"/*.1 "$share/man/man1/"
        for shell in bash zsh fish; do
            "$command" completions "$shell" >"$stage/$shell"
            target=${shell}_script
            install -D -m 644 "$stage/$shell" "${!target}"
        done
        echo "installed manual pages and completion scripts in $share"
        ;;
    "uninstall 1")
        rm -f "$share"/man/man1/evermap{,-*}.1 "$bash_script" "$zsh_script" "$fish_script"
        ;;
    *) sed -n '2,4s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2 ;;
esac
