"""Where results are sent after a run: ``tracking:`` of a suite, and the options of ``export --to``."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints

from visioneval.installation import install_command, is_installed
from visioneval.media.urls import TRUSTED_HOSTS, TRUSTED_PROJECTS, trusted_hosts, trusted_projects
from visioneval.suite.case import Name
from visioneval.suite.remote import CloudName
from visioneval.types import Frozen

DEFAULT_ROWS = 500
MOST_ROWS = 10_000


def _without_credentials(uri: str) -> str:
    """Refuses a password in an address: it would be in run.json. Raises ``ValueError``."""
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise ValueError(f"not a valid address: {error}") from None
    if parts.username or parts.password:
        raise ValueError("must not contain credentials: use the environment variables of the tracker's client")
    return uri


TrackingUri = Annotated[
    str, StringConstraints(pattern=r"^[^\s\x00-\x1f\x7f]+$", max_length=500), AfterValidator(_without_credentials)
]
TrackerName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]+$", max_length=128)]
Bucket = Annotated[str, StringConstraints(pattern=r"^gs://[a-z0-9][a-z0-9._-]+(/[A-Za-z0-9._=-]+)*/?$", max_length=500)]


class BaseTracking(Frozen):
    """What the entries of all trackers share. ``client`` is the module that is installed by the extra of its name."""

    client: ClassVar[str]
    to: str
    experiment: Name | None = Field(
        default=None, description="The experiment of the tracker; default: the suite's `experiment`, else its name."
    )
    rows: Annotated[int, Field(ge=1, le=MOST_ROWS, strict=True)] = Field(
        default=DEFAULT_ROWS,
        description="Cells in the tables and the report at most; those that did not pass come first.",
    )
    report: bool = Field(default=True, description="Whether the HTML report is sent, with the cells of the tables.")

    @property
    def is_local(self) -> bool:
        """Whether it only writes files on this machine."""
        return False

    @property
    def missing_client(self) -> str | None:
        """What to install before anything can be sent from this machine; ``None`` if it is."""
        if is_installed(self.client):
            return None
        return f"{self.to} needs an extra: {install_command(self.to)}"

    def untrusted_option(self) -> tuple[str, str] | None:
        """The key that a suite without trust must not have, and why; ``None`` if it may be used.

        Results contain outputs and prompts, and are sent with this machine's credentials.
        """
        return None


class MlflowTracking(BaseTracking):
    """An MLflow server."""

    client: ClassVar[str] = "mlflow"
    to: Literal["mlflow"]
    uri: TrackingUri | None = Field(
        default=None,
        description="The address of the server, without credentials, or a database: MLflow takes no folder since its"
        " version 3. Default: MLFLOW_TRACKING_URI of the environment.",
    )

    def untrusted_option(self) -> tuple[str, str] | None:
        """The server must be a trusted host; a path would be written on this machine."""
        if self.uri is None:
            return None
        parts = urlsplit(self.uri)
        host = (parts.hostname or "").rstrip(".")
        if parts.scheme in ("http", "https") and host in trusted_hosts():
            return None
        if parts.scheme not in ("http", "https"):
            return "uri", f"{self.uri!r} is not an http address: pass --trust-suite if you trust this suite"
        return "uri", f"results would be sent to {host!r}: pass --trust-suite, or add it to {TRUSTED_HOSTS}"


class WandbTracking(BaseTracking):
    """Weights & Biases."""

    client: ClassVar[str] = "wandb"
    to: Literal["wandb"]
    project: TrackerName | None = Field(
        default=None, description="Default: WANDB_PROJECT of the environment, else the experiment."
    )
    entity: TrackerName | None = Field(default=None, description="A user or team; default: that of the key.")
    mode: Literal["online", "offline"] = Field(
        default="online",
        description="`offline` writes W&B's files to `wandb` in the run's folder, or to WANDB_DIR, for `wandb sync` on"
        " this machine.",
    )

    @property
    def is_local(self) -> bool:
        """Whether it only writes files, for ``wandb sync``."""
        return self.mode == "offline"

    def untrusted_option(self) -> tuple[str, str] | None:
        """The account must be the one of the key."""
        if self.entity is None or self.is_local:
            return None
        return "entity", f"results would be sent to the account {self.entity!r}: pass --trust-suite to allow it"


class VertexTracking(BaseTracking):
    """Vertex AI Experiments. Uses the machine's application default credentials."""

    client: ClassVar[str] = "google.auth"
    to: Literal["vertex"]
    project: CloudName = Field(description="The project's ID: a-z, 0-9 and -.")
    location: CloudName = Field(description="A region: a-z, 0-9 and -.")
    bucket: Bucket | None = Field(
        default=None,
        description="A folder of a bucket for report, tables and images, such as `gs://bucket/evals`. Without it,"
        " Vertex AI gets parameters, metrics and tags.",
    )

    def untrusted_option(self) -> tuple[str, str] | None:
        """The project must be trusted; a bucket may belong to anyone."""
        if self.bucket is not None:
            return "bucket", f"results would be written to {self.bucket!r}: pass --trust-suite if you trust this suite"
        if self.project in trusted_projects():
            return None
        message = (
            "Vertex AI uses this machine's Google credentials: pass --trust-suite if you trust this suite, or add the"
            f" project {self.project!r} to {TRUSTED_PROJECTS}"
        )
        return "project", message


Tracking = Annotated[MlflowTracking | WandbTracking | VertexTracking, Field(discriminator="to")]
TRACKERS: dict[str, type[BaseTracking]] = {"mlflow": MlflowTracking, "wandb": WandbTracking, "vertex": VertexTracking}
