#include <fmt/format.h>

#include "data/formats/tar.h"
#include "fuzz.h"

using namespace athanor;

namespace {

/// Makes the checksum of everything that looks like a header fit: no fuzzer guesses those.
void fit_checksums(std::string& archive) {
  constexpr std::size_t kBlock = 512, kSum = 148, kSumLength = 8, kMagic = 257;
  for (std::size_t at = 0; at + kBlock <= archive.size(); at += kBlock) {
    if (archive.compare(at + kMagic, 5, "ustar") != 0) continue;
    archive.replace(at + kSum, kSumLength, kSumLength, ' ');
    unsigned sum = 0;
    for (std::size_t i = 0; i < kBlock; ++i) sum += static_cast<unsigned char>(archive[at + i]);
    archive.replace(at + kSum, kSumLength, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  }
}

}  // namespace

/// The first byte says whether the checksums of headers are made to fit.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string archive(fuzz::text_of(data + 1, size - 1));
  if (data[0] % 2) fit_checksums(archive);
  const auto file = fuzz::put("a.tar", archive);
  fuzz::read_all([&] { return open_tar(file); });
  return 0;
}
