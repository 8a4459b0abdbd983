"""`penstock completion`: what a shell needs to complete the command line."""

from typing import Literal

# The parser's scripts lack them. zsh runs the file _penstock at each completion, and sources it elsewhere; fish offers
# files in every place, also where a command or a topic is meant.
_ENDINGS = {
    "bash": "",
    "zsh": """if [[ $funcstack[1] == _penstock ]]; then
  _cyclopts_penstock "$@"
else
  compdef _cyclopts_penstock penstock
fi
""",
    "fish": """complete -c penstock -f
complete -c penstock -n '__fish_penstock_using_command topic export' -F
complete -c penstock -n '__fish_penstock_using_command topic import' -F
""",
}


def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print the script by which bash, zsh or fish completes commands and options of penstock.

    bash: penstock completion bash > ~/.local/share/bash-completion/completions/penstock

    zsh: penstock completion zsh > _penstock, in a directory of $fpath

    fish: penstock completion fish > ~/.config/fish/completions/penstock.fish

    Parameters
    ----------
    shell
        The shell that is to complete.
    """
    from penstock.cli.tree import app  # here: it names this module

    print(f"{app.generate_completion(shell=shell).rstrip()}\n{_ENDINGS[shell]}", end="")
