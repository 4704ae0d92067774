# Sourced by scripts that start Python often: ends with 77 where there is none. A python3 that only chooses an interpreter, as pyenv's
# does for 0.1 s each time, is replaced by that interpreter.
command -v python3 >/dev/null || { printf '%s: Skipped\npython3 is not installed here\n' "$0"; exit 77; }
interpreter=$(dirname "$(python3 -c 'import sys; print(sys.executable)')")
[ "$interpreter" = "$(dirname "$(command -v python3)")" ] || PATH=$interpreter:$PATH
