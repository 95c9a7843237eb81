"""What every group of settings is: frozen, closed, and silent about its values."""

from pydantic import BaseModel, ConfigDict


class Group(BaseModel):
    """A group of settings; an unknown name in it is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
