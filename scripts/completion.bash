# Completes commands and flags of Athanor's programs in bash, as their --help lists them. cmake --install puts it in its place;
# for a build: source scripts/completion.bash

_athanor() {
  local word=${COMP_WORDS[COMP_CWORD]} program=("${COMP_WORDS[0]}") known=''
  [[ $COMP_CWORD -lt 2 || ${COMP_WORDS[1]} == -* ]] || program+=("${COMP_WORDS[1]}") # of the tool
  [[ ${program[0]##*/} == athanor ]] || program=("${program[0]}")
  if [[ $word == -* ]]; then
    known=$("${program[@]}" --help 2>/dev/null | sed -nE 's/^  (-[^ ]+).*/\1/p' | tr ',' '\n')
  elif [[ ${program[0]##*/} == athanor && $COMP_CWORD -eq 1 ]]; then
    known=$("${program[@]}" --help 2>/dev/null | sed -nE '/^Subcommands:/,$s/^  ([a-z][a-z-]*) .*/\1/p')
  fi
  mapfile -t COMPREPLY < <(compgen -W "$known" -- "$word")
}
complete -o default -F _athanor athanor train_digits train_mnist train_cifar10 train_images
