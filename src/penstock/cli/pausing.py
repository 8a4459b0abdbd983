"""What is said of a group, a queue or a schedule that is paused or resumed: also that it was so before."""


def paused_until(was_paused: bool, resume: str) -> str:
    return f"{'was paused already' if was_paused else 'is paused'}, until {resume}"


def resumed(was_paused: bool) -> str:
    return "is paused no more" if was_paused else "was not paused"
