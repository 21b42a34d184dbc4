"""Errors of huggingface_hub, its HTTP client and the disk, as sentences that say what to do."""

from __future__ import annotations

import errno
import json

import httpx2
import msgspec
from huggingface_hub import errors as hub

from eaglechat.hub.errors import GatedError, HubError, OfflineError
from eaglechat.links.http.faults import retry_after_s

NOT_JSON = (json.JSONDecodeError, msgspec.DecodeError)
"""What parsing raises for an answer that did not come from a Hub."""

_LOGIN = "log in with `hf auth login` or set HF_TOKEN"


def explain(error: Exception, name: str, purpose: str = "") -> HubError:
    """The HubError for an error of huggingface_hub, its HTTP client or the disk.

    `name` is what was requested, in the user's words; `purpose` is why the Hub was asked, if not
    for `name`. Any other error is raised again, because it is a bug.
    """
    if isinstance(error, hub.HfHubHTTPError):
        return _explain_response(error, name)
    if isinstance(error, httpx2.RequestError):
        return _explain_transport(error, name, purpose or f"for {name}")
    if isinstance(error, hub.OfflineModeIsEnabled):
        missing = "" if purpose else f"{name} is not on this machine, and "
        asking = f"asking the Hub {purpose}".rstrip()
        return OfflineError(f"{missing}HF_HUB_OFFLINE forbids {asking}: unset it.")
    if isinstance(error, OSError):
        return _explain_disk(error, name)
    if isinstance(error, (hub.HFValidationError, UnicodeError)):
        of_token = f"The token for the Hub is no token: {_LOGIN}."
        is_token = isinstance(error, UnicodeError)
        return HubError(of_token if is_token else f"{name} is not a name the Hub allows.")
    if isinstance(error, (*NOT_JSON, httpx2.InvalidURL)):
        return HubError(
            f"The answer for {name} did not come from a Hugging Face Hub: check HF_ENDPOINT and "
            "the proxy, or log in to the network you are on."
        )
    raise error


def _explain_transport(error: httpx2.RequestError, name: str, purpose: str) -> HubError:
    if isinstance(error, (httpx2.UnsupportedProtocol, httpx2.TooManyRedirects)):
        return HubError(
            f"The Hub sends the request for {name} to no address that can be asked: check "
            "HF_ENDPOINT and the proxy."
        )
    if isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout)):
        return OfflineError(
            f"Cannot reach the Hub {purpose}: check the network (or HF_ENDPOINT and the proxy "
            "settings).",
            transient=True,
        )
    if isinstance(error, httpx2.TimeoutException):
        return HubError(
            f"The Hub stopped answering while it sent {name}: check the connection, then try again "
            "to resume.",
            transient=True,
        )
    return HubError(
        f"The connection broke during the download of {name}: try again to resume.",
        transient=True,
    )


def _explain_disk(error: OSError, name: str) -> HubError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return HubError(
            f"The disk is full. What was downloaded of {name} is kept; free some space and try "
            "again."
        )
    if error.filename is None:
        return HubError(f"{name} cannot be fetched: {error.strerror or error}.")
    return HubError(f"{name} cannot be written: {error.strerror or error} ({error.filename}).")


def _explain_response(error: hub.HfHubHTTPError, name: str) -> HubError:
    address = error.response.request.url
    if isinstance(error, hub.GatedRepoError):
        repo = error.repo_id or name
        page = f"{address.scheme}://{address.netloc.decode()}/{repo}"
        return GatedError(
            f"{repo} is gated: accept its licence at {page}, then {_LOGIN}, and try again."
        )
    if isinstance(error, hub.RevisionNotFoundError):
        return HubError(f"The Hub has no such revision of {name}.")
    if isinstance(error, hub.RemoteEntryNotFoundError):
        return HubError(f"{name} is not in its repository on the Hub.")
    if isinstance(error, hub.RepositoryNotFoundError):
        return HubError(
            f"{name} is not on the Hub, or it is private: check the spelling; if it is private, "
            f"{_LOGIN}."
        )
    return _explain_status(error.response, name)


def _explain_status(response: httpx2.Response, name: str) -> HubError:
    status = response.status_code
    wait = retry_after_s(response.headers)
    if status == 401:
        return GatedError(f"The Hub does not accept the token it was given for {name}: {_LOGIN}.")
    if status == 403:
        # A signed address of the storage expires within an hour; a HEAD request gives a new one.
        signed = response.request.method == "GET"
        return GatedError(f"The Hub refuses this account access to {name}.", transient=signed)
    if status == 404:
        return HubError(f"{name} is not where the Hub says it is.")
    if status == 429:
        return HubError(
            f"The Hub has had too many requests (for {name}): wait a while, or {_LOGIN} for a "
            "higher limit.",
            transient=True,
            retry_after=wait,
        )
    if status >= 500 or status in (408, 416):
        return HubError(
            f"The Hub failed (HTTP {status}) on {name}: try again later to resume.",
            transient=True,
            retry_after=wait,
        )
    return HubError(f"The Hub answered HTTP {status} to the request for {name}.")
