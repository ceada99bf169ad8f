# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Frames from files: a video, or the images of a folder in the order of their names."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from pathlib import Path
from typing import Any, cast

import cv2
import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.cameras.encoded_pictures import MAX_PIXELS
from jetson_dnn_rt.cameras.source import FrameSource, SourceOptions
from jetson_dnn_rt.config.camera_sources import IMAGE_SUFFIXES
from jetson_dnn_rt.errors import SourceError
from jetson_dnn_rt.frames import Image
from jetson_dnn_rt.safety import small_files
from jetson_dnn_rt.safety.utf8_paths import utf8_name

DEFAULT_RATE_HZ = 10.0
"""Rate of a folder of images, which has none of its own."""
ONCE = SourceOptions()

MOST_HZ, TIMED_FRAMES = 480.0, 64
"""A higher rate is none: for containers without one, such as WebM from a browser, FFmpeg gives the
ticks of their clock, 1000 a second and more. The first frames' times tell it then."""

CONTAINERS = (
    "mov,matroska,avi,mpegts,mpeg,mpegvideo,m4v,h264,hevc,av1,obu,ivf,ogg,flv,asf,mjpeg,"
    "mjpeg_2000,yuv4mpegpipe,gif,apng,mxf,nut,dv,wtv,rm,webp_pipe"
)
"""Formats of FFmpeg whose files hold their frames. The others are lists of other files and of
addresses (HLS, DASH, ffconcat, SDP): a video from a stranger must lead nowhere."""

_opening = threading.Lock()
_OPTIONS = "OPENCV_FFMPEG_CAPTURE_OPTIONS"  # read by OpenCV whenever it opens something
_LISTS = (b"#EXTM3U", b"ffconcat", b"<?xml", b"<MPD", b"v=0", b"[playlist]", b"<asx", b"# VobSub")
_LONGEST_LEAD = 16
"""Blanks and a byte order mark that a reader of lists may pass over."""

MAX_FILE = 8 * MAX_PIXELS + (1 << 20)
"""Bytes of a picture's file: four channels of 16 bits, not compressed."""

NAMED = 5
"""Files of a folder that are logged because they cannot be decoded; all are counted."""

logger = logging.getLogger(__name__)


class VideoSource(FrameSource):
    """The frames of a video file, in any container and codec that FFmpeg inside OpenCV reads.

    Where a video changes its size, FFmpeg scales its frames to the first one.
    SourceError when the file is missing or not a video.
    """

    live = False

    def __init__(self, name: str | Path, options: SourceOptions = ONCE) -> None:
        self._path = path = Path(name).expanduser()
        self._loop = options.loop
        if not path.is_file():
            raise SourceError(f"video {path} is not there: give the path of a video file")
        _refuse_list(path)
        self._capture = _open_capture(path)
        self.width = int(self._capture.get(cv2.CAP_PROP_FRAME_WIDTH))
        self.height = int(self._capture.get(cv2.CAP_PROP_FRAME_HEIGHT))
        if not self._capture.isOpened() or self.width < 1 or self.height < 1:
            self.close()
            raise SourceError(
                f"{path} cannot be read as a video: damaged, or an unknown codec; fix: "
                f"ffmpeg -i {path} -c:v libx264 out.mp4, if that can read it"
            )
        if self.width * self.height > MAX_PIXELS:
            self.close()
            size = f"{self.width}x{self.height} pixels"
            raise SourceError(f"{path}: {size}, more than the {MAX_PIXELS} accepted")
        stated_hz = float(self._capture.get(cv2.CAP_PROP_FPS))
        self._states_rate = 0.0 < stated_hz <= MOST_HZ
        self.rate_hz = stated_hz if self._states_rate else self._measure_rate(stated_hz)

    def read(self, out: Image) -> Image | None:
        """Decode the next frame, into `out` if it fits."""
        self.expect(out)
        image = self._read(out)
        if image is not None or not self._loop:
            return image
        # Reopened, not sought: many containers cannot seek to their first frame exactly.
        self.close()
        self._capture = _open_capture(self._path)
        if self._capture.isOpened():
            image = self._read(out)
        if image is None:
            raise SourceError(f"video {self._path} cannot be read from its start again")
        return image

    @property
    def position_ns(self) -> int:
        """Time of the frame read last within the video; 0 where the container has none."""
        return max(0, round(self._capture.get(cv2.CAP_PROP_POS_MSEC) * 1e6))

    def skip(self) -> bool:
        """Skip the next frame without converting it; False at the end."""
        return bool(self._capture.grab())

    def count_frames(self) -> int:
        """Number of frames, from the container or, where it has none, counted."""
        count = int(self._capture.get(cv2.CAP_PROP_FRAME_COUNT))
        if count > 0 and self._states_rate:  # else it is the duration times a wrong rate
            return count
        with contextlib.closing(VideoSource(self._path)) as other:
            return sum(1 for _ in iter(other.skip, False))

    def close(self) -> None:
        """Close the file."""
        self._capture.release()

    def _measure_rate(self, stated_hz: float) -> float:
        """The mean rate of the first frames, by their times."""
        times_ms: list[float] = []
        other = _open_capture(self._path)
        while len(times_ms) < TIMED_FRAMES and other.grab():
            times_ms.append(other.get(cv2.CAP_PROP_POS_MSEC))
        other.release()
        span_ms = times_ms[-1] - times_ms[0] if times_ms else 0.0
        rate_hz = 1e3 * (len(times_ms) - 1) / span_ms if span_ms > 0.0 else DEFAULT_RATE_HZ
        logger.warning(
            "%s states no frame rate (%g Hz): %.4g Hz by its frames; `rate` sets another",
            self._path, stated_hz, rate_hz,
        )  # fmt: skip
        return rate_hz

    def _read(self, out: Image) -> Image | None:
        done, image = self._capture.read(out)
        if not done:
            return None
        self.height, self.width = image.shape[:2]
        if self.width * self.height > MAX_PIXELS:
            size = f"{self.width}x{self.height} pixels"
            raise SourceError(f"{self._path}: {size}, more than the {MAX_PIXELS} accepted")
        return cast("Image", image)  # `out`, where the frame fits


def _open_capture(path: Path) -> cv2.VideoCapture:
    """Open a video with FFmpeg and `CONTAINERS` only, where this OpenCV has FFmpeg.

    Any other back end takes a name with a number for that of the first of many images.
    """
    if not cv2.videoio_registry.hasBackend(cv2.CAP_FFMPEG):
        with utf8_name(path) as name:
            return cv2.VideoCapture(name)
    with _opening, utf8_name(path) as name:
        given = os.environ.get(_OPTIONS)
        allowed = f"format_whitelist;{CONTAINERS}"
        os.environ[_OPTIONS] = f"{given}|{allowed}" if given else allowed
        try:
            return cv2.VideoCapture(name, cv2.CAP_FFMPEG)
        finally:
            if given is None:
                del os.environ[_OPTIONS]
            else:
                os.environ[_OPTIONS] = given


def _refuse_list(path: Path) -> None:
    """Refuse what stands for other files by its first bytes, whatever reads videos here."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError as error:
        raise SourceError(f"video {path} cannot be read: {error.strerror}") from error
    if pointer := small_files.describe_pointer(head):
        raise SourceError(f"video {path} {pointer}")
    lead = head[:_LONGEST_LEAD].removeprefix(b"\xef\xbb\xbf")
    if (lead.lstrip() + head[_LONGEST_LEAD:]).startswith(_LISTS):
        raise SourceError(
            f"{path} is a list of other files, not a video: give one of those, or make one of "
            f"them: ffmpeg -i {path} -c copy out.mp4"
        )


class ImagesSource(FrameSource):
    """The images of one folder, in the order of their names, each in its own size.

    Files that cannot be decoded are passed over: the first ones are logged, all are counted.
    SourceError when the folder is missing or holds no readable image.
    """

    live = False
    rate_hz = DEFAULT_RATE_HZ

    def __init__(self, folder: str, options: SourceOptions) -> None:
        self._folder = folder
        self._files = list_images(Path(folder).expanduser())
        self._loop = options.loop
        self._next = 0
        self.height, self.width = self._find_first().shape[:2]

    def read(self, out: Image) -> Image | None:
        """Decode the next file, and copy it to `out` if it fits."""
        self.expect(out)
        for _ in self._files:
            if self._next == len(self._files):
                if not self._loop:
                    return None
                self._next = 0
            file = self._files[self._next]
            self._next += 1
            try:
                image = read_image(file)
            except SourceError as error:
                self._pass_over(error)
                continue
            self.file = file.name
            if image.shape != out.shape:
                return image
            out[:] = image
            return out
        raise SourceError(f"images: no image of {self._folder} can be decoded any more")

    def _find_first(self) -> Image:
        """The first image that can be decoded; `read` counts those before it."""
        first: SourceError | None = None
        for file in self._files:
            try:
                return read_image(file)
            except SourceError as error:
                first = first or error
        assert first is not None
        raise first

    def _pass_over(self, error: SourceError) -> None:
        self.unreadable += 1
        if self.unreadable <= NAMED:
            last = "; further ones are only counted" if self.unreadable == NAMED else ""
            logger.warning("%s: passed over%s", error, last)


def list_images(folder: Path) -> list[Path]:
    """List the images of a folder by name; SourceError when there is no folder or no image."""
    if not folder.is_dir():
        kind = "is a file" if folder.exists() else "does not exist"
        raise SourceError(f"images: {folder} {kind}; give a folder with images")
    images = (file for file in folder.iterdir() if file.suffix.lower() in IMAGE_SUFFIXES)
    files = sorted(file for file in images if file.is_file())
    if not files:
        raise SourceError(
            f"images: {folder} holds no image; its files must end in {', '.join(IMAGE_SUFFIXES)}"
        )
    return files


def read_image(file: Path) -> Image:
    """Decode one file, uint8 [H, W, 3] in the order bgr.

    An orientation in EXIF data is applied: a photo is upright, as every viewer shows it. Grey
    becomes three equal colours, transparency is left out, 16 bits become 8.

    SourceError when it cannot be read or decoded, or has more than `MAX_PIXELS`.
    """
    image = decode_file(file, cv2.IMREAD_COLOR)
    if image is None or image.size > 3 * MAX_PIXELS:
        # An OpenCV that was loaded before this package has a limit of its own.
        raise SourceError(f"image {file} cannot be decoded, or has more than {MAX_PIXELS} pixels")
    return np.asarray(image, np.uint8)


def decode_file(file: Path, flags: int) -> npt.NDArray[Any] | None:
    """Decode a picture with these flags of ``cv2.imdecode``; None for one that is damaged.

    Not `cv2.imread`, which ends the process at a name that is not UTF-8. SourceError when it
    cannot be read, or has more than `MAX_PIXELS`.
    """
    try:
        data = np.frombuffer(small_files.read_bytes(file, MAX_FILE), np.uint8)
        return cv2.imdecode(data, flags) if len(data) else None
    except OSError as error:
        raise SourceError(f"image {file} cannot be read: {error.strerror}") from error
    except (cv2.error, MemoryError) as error:
        # OpenCV raises for what is too large, and returns None for what is damaged.
        text = " ".join(str(error).split())[:200]
        raise SourceError(
            f"image {file} cannot be decoded, or has more than {MAX_PIXELS} pixels: {text}"
        ) from error


def write_image(file: Path, image: Image) -> None:
    """Encode a picture, as its name ends, and write it; OSError when it cannot be written.

    Not `cv2.imwrite`, which leaves an empty file on a full disk and reports success.
    """
    file.write_bytes(cv2.imencode(file.suffix, image)[1].tobytes())
