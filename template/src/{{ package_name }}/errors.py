"""The one exception that reaches a user as a line of text."""


class UserError(Exception):
    """Something the user can mend: shown as one line, without a traceback.

    `exit_code` is 2 for bad input and 1 for a failure.
    """

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(" ".join(message.split()))
        self.exit_code = exit_code
