#include <zlib.h>

#include "data/formats/detail/bytes.h"
#include "data/formats/detail/npy_header.h"
#include "data/formats/detail/writing.h"
#include "data/formats/npy.h"

namespace athanor {
namespace {

std::uint32_t crc_of(std::span<const std::byte> bytes, std::uint32_t seed = 0) {
  return static_cast<std::uint32_t>(
      crc32_z(seed, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

// A zip archive with uncompressed members and 64-bit sizes. (PKWARE, APPNOTE 6.3, 4.3 and 4.5.3.)
struct Member {
  std::string name;
  std::int64_t start = 0;  ///< of its local header
  std::int64_t bytes = 0;
  std::uint32_t crc = 0;
};

constexpr std::uint32_t kIn64 = 0xffffffff;               // the value is in the 64-bit field
constexpr std::uint16_t kVersion = 45, kFirstDay = 0x21;  // of 1980: the date is fixed, as are the bytes

/// Numbers of the widths that a zip archive has.
struct ZipWriter : detail::ByteWriter {
  ZipWriter& u16(std::initializer_list<std::uint16_t> values) {
    for (const std::uint16_t value : values) le(value);
    return *this;
  }
  ZipWriter& u32(std::initializer_list<std::uint32_t> values) {
    for (const std::uint32_t value : values) le(value);
    return *this;
  }
  ZipWriter& u64(std::initializer_list<std::int64_t> values) {
    for (const std::int64_t value : values) le(value);
    return *this;
  }
  /// Fields common to a local header and a directory entry; `extra`: bytes after the name.
  ZipWriter& common(const Member& member, std::uint16_t extra) {
    u16({kVersion, 0, 0, 0, kFirstDay}).u32({member.crc, kIn64, kIn64});
    return u16({static_cast<std::uint16_t>(member.name.size()), extra});
  }
};

std::vector<std::byte> local_header(const Member& member) {
  ZipWriter out;
  out.u32({0x04034b50}).common(member, 20).add(member.name);
  return std::move(out.u16({1, 16}).u64({member.bytes, member.bytes}).bytes);
}

std::vector<std::byte> directory(const std::vector<Member>& members, std::int64_t start) {
  ZipWriter out;
  for (const Member& member : members) {
    out.u32({0x02014b50}).u16({kVersion}).common(member, 28).u16({0, 0, 0}).u32({0, kIn64}).add(member.name);
    out.u16({1, 24}).u64({member.bytes, member.bytes, member.start});
  }
  const std::int64_t length = std::ssize(out.bytes), count = std::ssize(members);
  out.u32({0x06064b50}).u64({44}).u16({kVersion, kVersion}).u32({0, 0}).u64({count, count, length, start});
  out.u32({0x07064b50, 0}).u64({start + length}).u32({1});
  const auto count16 = static_cast<std::uint16_t>(count);
  out.u32({0x06054b50}).u16({0, 0, count16, count16}).u32({static_cast<std::uint32_t>(length)});
  out.u32({start < kIn64 ? static_cast<std::uint32_t>(start) : kIn64}).u16({0});
  return std::move(out.bytes);
}

class NpzWriter final : public SampleWriter {
 public:
  explicit NpzWriter(const std::filesystem::path& path) : file_(path) {}

  void add(const StoredSample& sample) override {
    samples_.add(sample);
    if (samples_.size() == 1) {  // placeholders of the final lengths, overwritten at the end
      file_.write(local_header(images_));
      file_.write(header());
    }
    file_.write(sample.bytes);
    crc_ = crc_of(sample.bytes, crc_);
  }

  void finish() override {
    samples_.check_some();
    const std::vector<std::byte> head = header();
    const std::int64_t pixels = samples_.size() * samples_.spec().bytes();
    images_.bytes = std::ssize(head) + pixels;
    images_.crc = static_cast<std::uint32_t>(crc32_combine(crc_of(head), crc_, static_cast<z_off_t>(pixels)));
    const std::vector<std::byte> local = local_header(images_);
    file_.rewrite(0, local);
    file_.rewrite(std::ssize(local), head);

    const std::vector<std::byte> content = detail::npy_labels_file(samples_.labels());
    const Member labels{"labels.npy", file_.size(), std::ssize(content), crc_of(content)};
    file_.write(local_header(labels));
    file_.write(content);
    file_.write(directory({images_, labels}, file_.size()));
    file_.commit();
  }

 private:
  std::vector<std::byte> header() const {
    return detail::npy_images_header(samples_.size(), samples_.spec());
  }

  detail::UniformSamples samples_{"npz"};
  detail::OutputFile file_;
  Member images_{"images.npy", 0, 0, 0};
  std::uint32_t crc_ = 0;  // of the pixels
};

}  // namespace

std::unique_ptr<SampleWriter> create_npz(const std::filesystem::path& path) {
  return std::make_unique<NpzWriter>(path);
}

}  // namespace athanor
