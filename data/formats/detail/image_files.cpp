#include "data/formats/detail/image_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "data/formats/detail/bytes.h"
#include "tensor/error.h"

namespace athanor::detail {

std::optional<Codec> codec_named(std::string_view file) {
  const std::string end = lower_case(file.substr(std::min(file.rfind('.'), file.size())));
  if (end == ".png") return Codec::png;
  if (end == ".webp") return Codec::webp;
  if (end == ".jpg" || end == ".jpeg") return Codec::jpeg;
  return std::nullopt;
}

bool is_heic_named(std::string_view file) {
  const std::string end = lower_case(file.substr(std::min(file.rfind('.'), file.size())));
  return end == ".heic" || end == ".heif";
}

std::vector<std::string> sorted_names(const std::filesystem::path& folder, const char* format) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::string name = at->path().filename().string();
    if (!name.starts_with('.')) names.push_back(std::move(name));
  }
  if (error) {
    fail<IoError>("{}: {} must be a readable folder, but got: {}", format, folder.string(), error.message());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::size_t append_file(const RegularFile& file, std::vector<std::byte>& to, std::size_t from,
                        const char* format, const std::function<std::string()>& name) {
  constexpr std::int64_t kMax = std::int64_t{1} << 30;
  const auto refuse = [&](const std::string& why) { fail<IoError>("{}: {}: {}", format, name(), why); };
  if (!file.problem().empty()) refuse(file.problem());
  const std::int64_t bytes = file.bytes();
  if (bytes > kMax) refuse(fmt::format("must have at most 1 GiB, but has {} bytes", bytes));
  const std::size_t end = from + static_cast<std::size_t>(bytes);
  if (to.size() < end) to.resize(end);
  const auto got = static_cast<std::int64_t>(file.read_at(0, std::span(to).subspan(from, end - from)));
  if (got != bytes) {
    refuse(errno != 0 ? fmt::format("offset {}: cannot be read: {}", got, std::strerror(errno))
                      : fmt::format("offset {}: must have {} bytes, but ends here", got, bytes));
  }
  return end;
}

}  // namespace athanor::detail
