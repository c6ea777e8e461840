"""The one exception that reaches a user as a line of text."""


class UserError(Exception):
    """Something the user can mend: shown as one line, without a traceback.

    `exit_code` is 2 for bad input and 1 for a failure; `cause_matters` adds the traceback of the
    cause, for exceptions raised inside the owner's own code.
    """

    def __init__(self, message: str, exit_code: int = 2, cause_matters: bool = False) -> None:
        super().__init__(" ".join(message.split()))
        self.exit_code = exit_code
        self.cause_matters = cause_matters
