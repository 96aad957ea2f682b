"""What a medium is, by its first bytes rather than by what its server says."""

from __future__ import annotations

from typing import Final, Literal

from gateway.media.addresses import MediaError

MediaKind = Literal["image", "video", "audio", "file"]

_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"\x1aE\xdf\xa3", "video/webm"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"ID3", "audio/mpeg"),
    (b"%PDF-", "application/pdf"),
)
_RIFF: Final = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
# Of these a server's word is taken, since nothing in their first bytes tells them for sure.
_TRUSTED: Final = ("image/tiff", "image/avif", "image/heic", "video/mp4", "video/quicktime", "audio/mp4", "audio/mpeg")


def media_type(declared: str, body: bytes, kind: MediaKind) -> str:
    """The media type of a body of this kind. Raises MediaError when it is something else (a web page, SVG, text)."""
    seen = _seen(body) or (declared if declared in _TRUSTED else "")
    if kind == "file" and not seen and declared == "text/plain":
        return declared
    if not seen or (kind != "file" and not seen.startswith(f"{kind}/")):
        raise MediaError(f"is no {kind}")
    return seen


def _seen(body: bytes) -> str:
    if body[:4] == b"RIFF":
        return _RIFF.get(body[8:12], "")
    if body[4:8] == b"ftyp":
        return "image/avif" if body[8:12] in (b"avif", b"avis") else "video/mp4"
    return next((name for magic, name in _MAGIC if body.startswith(magic)), "")
