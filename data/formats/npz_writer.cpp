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

/// A zip archive of members that are stored as they are, with sizes of 64 bits. (PKWARE, APPNOTE 6.3, 4.3
/// and 4.5.3.)
class StoredZip {
 public:
  struct Member {
    std::string name;
    std::int64_t start = 0;  ///< of its local header
    std::int64_t bytes = 0;
    std::uint32_t crc = 0;
  };

  static std::vector<std::byte> local_header(const Member& member) {
    Bytes out;
    out.u32(0x04034b50);
    common(out, member);
    out.u16(20);
    out.text(member.name);
    out.u16(1).u16(16).u64(member.bytes).u64(member.bytes);
    return out.bytes;
  }

  static std::vector<std::byte> directory(const std::vector<Member>& members, std::int64_t start) {
    Bytes out;
    for (const Member& member : members) {
      out.u32(0x02014b50).u16(kVersion);
      common(out, member);
      out.u16(28).u16(0).u16(0).u16(0).u32(0).u32(kIn64);
      out.text(member.name);
      out.u16(1).u16(24).u64(member.bytes).u64(member.bytes).u64(member.start);
    }
    const std::int64_t length = std::ssize(out.bytes), count = std::ssize(members);
    out.u32(0x06064b50).u64(44).u16(kVersion).u16(kVersion).u32(0).u32(0);
    out.u64(count).u64(count).u64(length).u64(start);
    out.u32(0x07064b50).u32(0).u64(start + length).u32(1);
    const auto count16 = static_cast<std::uint16_t>(count);
    out.u32(0x06054b50).u16(0).u16(0).u16(count16).u16(count16);
    out.u32(static_cast<std::uint32_t>(length));
    out.u32(start < kIn64 ? static_cast<std::uint32_t>(start) : kIn64).u16(0);
    return out.bytes;
  }

 private:
  static constexpr std::uint16_t kVersion = 45;
  static constexpr std::uint32_t kIn64 = 0xffffffff;

  struct Bytes {
    std::vector<std::byte> bytes;
    template <class T> Bytes& number(T value) {
      for (const std::byte byte : detail::stored_le(value)) bytes.push_back(byte);
      return *this;
    }
    Bytes& u16(std::uint16_t value) { return number(value); }
    Bytes& u32(std::uint32_t value) { return number(value); }
    Bytes& u64(std::int64_t value) { return number(value); }
    void text(const std::string& value) {
      for (const std::byte byte : detail::bytes_of(value)) bytes.push_back(byte);
    }
  };

  /// What a local header and an entry of the directory have in common; ends with the name's length.
  static void common(Bytes& out, const Member& member) {
    constexpr std::uint16_t kFirstDay = 0x21;  // of 1980: the same samples make the same bytes
    out.u16(kVersion).u16(0).u16(0).u16(0).u16(kFirstDay);
    out.u32(member.crc).u32(kIn64).u32(kIn64).u16(static_cast<std::uint16_t>(member.name.size()));
  }
};

class NpzWriter final : public SampleWriter {
 public:
  explicit NpzWriter(const std::filesystem::path& path) : file_(path) {}

  void add(const StoredSample& sample) override {
    samples_.add(sample);
    if (samples_.size() == 1) {  // to be filled in at the end; of the same lengths then
      file_.write(StoredZip::local_header(images_));
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
    const std::vector<std::byte> local = StoredZip::local_header(images_);
    file_.rewrite(0, local);
    file_.rewrite(std::ssize(local), head);

    const std::vector<std::byte> content = detail::npy_labels_file(samples_.labels());
    const StoredZip::Member labels{"labels.npy", file_.size(), std::ssize(content), crc_of(content)};
    file_.write(StoredZip::local_header(labels));
    file_.write(content);
    file_.write(StoredZip::directory({images_, labels}, file_.size()));
    file_.commit();
  }

 private:
  std::vector<std::byte> header() const {
    return detail::npy_images_header(samples_.size(), samples_.spec());
  }

  detail::UniformSamples samples_{"npz"};
  detail::OutputFile file_;
  StoredZip::Member images_{"images.npy", 0, 0, 0};
  std::uint32_t crc_ = 0;  // of the pixels
};

}  // namespace

std::unique_ptr<SampleWriter> create_npz(const std::filesystem::path& path) {
  return std::make_unique<NpzWriter>(path);
}

}  // namespace athanor
