"""Archives that come out the same, byte for byte, for the same content: sorted names, one time, no owner."""
import gzip
import io
import tarfile
import zipfile
import time


class Entry:
    """A file or a symbolic link of a package. `content` is bytes; a link has `link` instead."""

    def __init__(self, content=b"", mode=0o644, link=None):
        self.content, self.mode, self.link = content, mode, link


def tar(entries, epoch, owner="root"):
    """An uncompressed tar of `entries` (path -> Entry), with every folder that leads to one."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(set(entries) | folders(entries)):
            info = tarfile.TarInfo(path)
            info.mtime, info.uname, info.gname = epoch, owner, owner
            entry = entries.get(path)
            if entry is None:
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(info)
            elif entry.link is not None:
                info.type, info.linkname, info.mode = tarfile.SYMTYPE, entry.link, 0o777
                archive.addfile(info)
            else:
                info.size, info.mode = len(entry.content), entry.mode
                archive.addfile(info, io.BytesIO(entry.content))
    return out.getvalue()


def folders(entries):
    """Every folder above an entry."""
    found = set()
    for path in entries:
        parts = path.split("/")[:-1]
        found.update("/".join(parts[: n + 1]) for n in range(len(parts)))
    return found - {"", "."}


def tar_gz(entries, epoch):
    return gzip.compress(tar(entries, epoch), compresslevel=9, mtime=epoch)


def zipped(entries, epoch):
    """A zip with deflate, as wheels are. Times before 1980 cannot be written in one."""
    out = io.BytesIO()
    moment = time.gmtime(max(epoch, 315532800))[:6]
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path, entry in sorted(entries.items()):
            info = zipfile.ZipInfo(path, moment)
            info.create_system, info.compress_type = 3, zipfile.ZIP_DEFLATED
            info.external_attr = (0o100000 | entry.mode) << 16
            archive.writestr(info, entry.content)
    return out.getvalue()


def ar(members, epoch):
    """The archive format of a .deb: a header of 60 characters before each member, members at even offsets."""
    out = bytearray(b"!<arch>\n")
    for name, content in members:
        out += f"{name:<16}{epoch:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode()
        out += content
        if len(content) % 2:
            out += b"\n"
    return bytes(out)
