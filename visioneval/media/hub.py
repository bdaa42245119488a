"""Files of datasets on the Hugging Face Hub (``hf://datasets/...``), which need the extra ``hf``.

They are downloaded to the Hub's own cache, and only when they changed.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from visioneval.errors import UsageError

HUB = "huggingface.co"
"""The host whose name in ``VISIONEVAL_TRUSTED_HOSTS`` lets an untrusted suite read datasets."""


def hub_problem(url: str) -> str | None:
    """Why a URL names no file of a dataset on the Hub."""
    parts = urlsplit(url)
    if parts.netloc != "datasets" or parts.path.count("/") < 2 or parts.query:
        return "write hf://datasets/OWNER/NAME/FILE"
    return None


def fetch_from_hub(url: str, limit: int) -> bytes:
    """Reads a file of at most ``limit`` bytes. Raises ``ImportError`` without the extra, and ``UsageError``."""
    from huggingface_hub import HfFileSystem, get_hf_file_metadata, get_token, hf_hub_download, hf_hub_url
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    try:
        resolved = HfFileSystem().resolve_path(url)
        options = {"repo_type": resolved.repo_type, "revision": resolved.revision}
        size = get_hf_file_metadata(hf_hub_url(resolved.repo_id, resolved.path_in_repo, **options)).size
        if size is not None and size > limit:
            raise UsageError(f"over the limit of {limit:,} bytes")
        file = hf_hub_download(resolved.repo_id, resolved.path_in_repo, **options)
    except GatedRepoError:
        raise UsageError(_denied("the dataset is gated", has_token=bool(get_token()))) from None
    except LocalEntryNotFoundError:
        raise UsageError("the Hub cannot be reached, and its cache does not have the file") from None
    except EntryNotFoundError:
        raise UsageError("there is no such file") from None
    except (RepositoryNotFoundError, FileNotFoundError):
        message = "there is no such dataset or revision, or it is private"
        raise UsageError(_denied(message, has_token=bool(get_token()))) from None
    data = Path(file).read_bytes()
    if len(data) > limit:
        raise UsageError(f"over the limit of {limit:,} bytes")
    return data


def _denied(reason: str, *, has_token: bool) -> str:
    if has_token:
        return f"{reason}: the Hub's token on this machine has no access to it"
    return f"{reason}: to read it with a token, set HF_TOKEN"
