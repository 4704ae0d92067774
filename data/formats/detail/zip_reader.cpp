#include "data/formats/detail/zip_reader.h"

#include <algorithm>

#include <zip.h>

#include "tensor/error.h"

namespace athanor::detail {
namespace {

constexpr char kAdvice[] = "write it again with numpy.savez";

}  // namespace

ZipReader::ZipReader(const std::filesystem::path& path) : file_(path, "npz", kAdvice) {
  zip_error_t error;
  zip_error_init(&error);
  const auto check = [&](const void* made) {
    if (made) return;
    const std::string reason = zip_error_strerror(&error);
    zip_error_fini(&error);
    fail("must be a whole zip file, but got: " + reason);
  };
  zip_source_t* source = zip_source_buffer_create(file_.bytes().data(), file_.bytes().size(), 0, &error);
  check(source);
  archive_ = zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, &error);
  if (!archive_) zip_source_free(source);
  check(archive_);
  zip_error_fini(&error);
}

ZipReader::~ZipReader() {
  zip_discard(static_cast<zip_t*>(archive_));
}

bool ZipReader::has(const std::string& member) const {
  return zip_name_locate(static_cast<zip_t*>(archive_), member.c_str(), 0) >= 0;
}

void ZipReader::fail_in(const std::string& member, std::int64_t offset, const std::string& message) const {
  FileBytes(file_.name() + ":" + member, {}, "npz", kAdvice).fail(offset, message);
}

std::uint64_t ZipReader::find(const std::string& member) const {
  const std::int64_t index = zip_name_locate(static_cast<zip_t*>(archive_), member.c_str(), 0);
  if (index < 0) fail_in(member, 0, "the member must be there, but is not");
  return static_cast<std::uint64_t>(index);
}

std::int64_t ZipReader::size(const std::string& member) const {
  zip_stat_t status;
  if (zip_stat_index(static_cast<zip_t*>(archive_), find(member), 0, &status) != 0 ||
      !(status.valid & ZIP_STAT_SIZE) || !(status.valid & ZIP_STAT_COMP_METHOD)) {
    fail_in(member, 0, "the member must have a size and a method, but has not");
  }
  if (status.comp_method != ZIP_CM_STORE && status.comp_method != ZIP_CM_DEFLATE) {
    fail_in(member, 0,
            fmt::format("the member must be stored or deflated, but its method is {}", status.comp_method));
  }
  if (status.size / kMostExpansion > file_.bytes().size()) {
    fail_in(member, 0,
            fmt::format("the member's {} bytes must fit into a file of {}, but cannot", status.size,
                        file_.size()));
  }
  return static_cast<std::int64_t>(status.size);
}

// Memory grows with what comes out. Of a whole member one byte more is asked for, which must not come: the
// CRC is checked there.
std::shared_ptr<const FileBytes> ZipReader::read(const std::string& member, std::int64_t most) const {
  constexpr std::size_t kPiece = std::size_t{1} << 24;
  auto* archive = static_cast<zip_t*>(archive_);
  const std::int64_t whole = size(member);
  const auto wanted = static_cast<std::size_t>(std::min(whole, most)), room = wanted + (most > whole ? 1 : 0);
  zip_file_t* opened = zip_fopen_index(archive, find(member), 0);
  if (!opened) {
    fail_in(member, 0, fmt::format("the member must be readable, but got: {}", zip_strerror(archive)));
  }
  const std::unique_ptr<zip_file_t, int (*)(zip_file_t*)> file(opened, &zip_fclose);
  std::vector<std::uint8_t> content;
  content.reserve(room);
  std::size_t done = 0;
  for (zip_int64_t got = 1; got > 0 && done < room; done += static_cast<std::size_t>(got)) {
    content.resize(std::min(room, done + kPiece));
    got = zip_fread(opened, content.data() + done, content.size() - done);
    if (got < 0) {
      fail_in(member, static_cast<std::int64_t>(done),
              fmt::format("the member must be whole, but got: {}", zip_file_strerror(opened)));
    }
  }
  content.resize(done);
  if (done != wanted) {
    fail_in(member, static_cast<std::int64_t>(done),
            fmt::format("the member must have {} bytes, but has not", whole));
  }
  return std::make_shared<FileBytes>(file_.name() + ":" + member, std::move(content), "npz", kAdvice);
}

}  // namespace athanor::detail
