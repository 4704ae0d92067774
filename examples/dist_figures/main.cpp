// Draws the pictures of the chapters on several ranks, from what the code does: dist_figures FOLDER [NAME...]

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "examples/dist_figures/figures.h"
#include "tensor/error.h"
#include "trainer/run_main.h"

namespace athanor::examples {
namespace {

struct Picture {
  const char* name;
  std::string (*draw)(std::string& table);
};
constexpr Picture kPictures[] = {
    {"ring", [](std::string&) { return ring_picture(); }},
    {"data_parallel_bytes", bytes_picture},
    {"zero1_layout", layout_picture},
    {"overlap", overlap_picture},
};

void draw(const std::filesystem::path& folder, const Picture& picture) {
  std::string table;
  const std::string drawn = picture.draw(table);
  const std::filesystem::path path = folder / (std::string(picture.name) + ".svg");
  std::ofstream file(path, std::ios::trunc);
  file << drawn << std::flush;
  if (!file) detail::fail<IoError>("dist_figures: {} cannot be written", path.string());
  fmt::print("{}\n{}\n", path.string(), table);
}

int run(int argc, char** argv) {
  ATH_CHECK(argc >= 2 && argv[1][0] != '-',
            "dist_figures: expected a folder, then names of pictures (ring, data_parallel_bytes, "
            "zero1_layout, overlap; all of them where none is named)");
  ATH_CHECK(std::filesystem::is_directory(argv[1]), "dist_figures: {} must be a folder, but is not", argv[1]);
  for (int i = 2; i < argc; ++i) {
    const bool known =
        std::ranges::any_of(kPictures, [&](const Picture& p) { return std::string(p.name) == argv[i]; });
    ATH_CHECK(known, "dist_figures: '{}' must be one of ring, data_parallel_bytes, zero1_layout, overlap",
              argv[i]);
  }
  for (const Picture& picture : kPictures) {
    bool wanted = argc == 2;
    for (int i = 2; i < argc; ++i) wanted = wanted || std::string(picture.name) == argv[i];
    if (wanted) draw(argv[1], picture);
  }
  return kExitDone;
}

}  // namespace
}  // namespace athanor::examples

int main(int argc, char** argv) {
  return athanor::run_main(argc, argv, athanor::examples::run);
}
