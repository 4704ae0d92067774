#include <algorithm>
#include <cmath>
#include <memory>

#include "dist/transports/thread_transport.h"
#include "examples/common/svg.h"
#include "examples/dist_figures/figures.h"
#include "tensor/error.h"

// What a step sends, counted: one rank that hands out and collects (DataParallel), and ranks that are equal
// (DDP). The same messages as in training, with fewer elements; a formula says what there must be.

namespace athanor::examples {
namespace {

using dist::Request;

/// Of every rank, what goes in and out: in parts of the weights, and of one rank's images.
struct Traffic {
  std::vector<double> weights, images;
};

constexpr std::size_t kBytes = 64 * 63 * sizeof(float);  // of the small model, and of a rank's small images

struct Job {
  explicit Job(int world) : threads(world) {
    for (int r = 0; r < world; ++r) {
      ranks.push_back(std::make_unique<Traced>(threads.transport(r)));
      ranks.back()->keeps = false;
    }
  }
  int world() const { return static_cast<int>(ranks.size()); }

  /// One message, from beginning to end.
  void move(int from, int to, std::span<std::byte> out, std::span<std::byte> in) {
    Request sent = at(from).isend(to, 0, out), received = at(to).irecv(from, 0, in);
    while (!at(from).test(sent) || !at(to).test(received)) continue;
  }
  std::vector<double> counted() const {
    std::vector<double> units;
    for (const auto& rank : ranks)
      units.push_back(static_cast<double>(rank->sent_bytes + rank->received_bytes) /
                      static_cast<double>(kBytes));
    return units;
  }
  Traced& at(int rank) { return *ranks[static_cast<std::size_t>(rank)]; }

  dist::ThreadJob threads;
  std::vector<std::unique_ptr<Traced>> ranks;
};

/// Weights to everyone, one after the other, and everyone's gradients back; the images of the others.
Traffic from_one_rank(int world) {
  std::vector<std::byte> out(kBytes), in(kBytes);
  Job weights(world), images(world);
  for (int r = 1; r < world; ++r) {
    weights.move(0, r, out, in);
    weights.move(r, 0, out, in);
    images.move(0, r, out, in);
  }
  return {weights.counted(), images.counted()};
}

/// The same, with weights handed on from rank to rank, and sums of gradients handed back.
Traffic along_a_chain(int world) {
  Job weights(world);
  std::vector<std::unique_ptr<dist::Communicator>> comms;
  std::vector<std::unique_ptr<dist::Collective>> broadcasts;
  for (const auto& rank : weights.ranks) {
    comms.push_back(std::make_unique<dist::Communicator>(*rank));
    broadcasts.push_back(
        comms.back()->broadcast(Tensor::zeros({kBytes / static_cast<std::int64_t>(sizeof(float))}), 0));
  }
  run_together(broadcasts);
  std::vector<std::byte> out(kBytes), in(kBytes);
  for (int r = world - 1; r > 0; --r) weights.move(r, r - 1, out, in);
  return {weights.counted(), from_one_rank(world).images};
}

/// An all-reduce of the gradients. Everyone reads its own images.
Traffic among_equals(int world) {
  Job job(world);
  std::vector<std::unique_ptr<dist::Communicator>> comms;
  std::vector<std::unique_ptr<dist::Collective>> reduces;
  for (const auto& rank : job.ranks) {
    comms.push_back(std::make_unique<dist::Communicator>(
        *rank, dist::CommunicatorOptions{.algorithm = dist::Algorithm::ring}));
    reduces.push_back(
        comms.back()->all_reduce(Tensor::zeros({kBytes / static_cast<std::int64_t>(sizeof(float))})));
  }
  run_together(reduces);
  return {job.counted(), std::vector<double>(job.ranks.size())};
}

struct Row {
  int world;
  Traffic one, chain, equals;
};

constexpr double kWeightsMb = 11'689'512 * 4e-6;         // ResNet-18 in f32
constexpr double kImagesMb = 32 * 224 * 224 * 3e-6 * 4;  // 32 images in f32

/// Of the rank that has most.
double mb(const Traffic& traffic) {
  double most = 0;
  for (std::size_t r = 0; r < traffic.weights.size(); ++r)
    most = std::max(most, traffic.weights[r] * kWeightsMb + traffic.images[r] * kImagesMb);
  return most;
}
/// False while a rank in the middle of a chain moves more.
bool rank_0_is_busiest(const Traffic& traffic) {
  return traffic.weights.size() > 2 &&
         traffic.weights[0] * kWeightsMb + traffic.images[0] * kImagesMb == mb(traffic);
}
double images_mb(const Traffic& traffic) {
  return *std::ranges::max_element(traffic.images) * kImagesMb;
}

/// What must have been counted: rank 0 and each of the others have a formula.
void check(const Row& row) {
  const double others = row.world - 1;
  bool holds = row.one.weights[0] == 2 * others && row.one.images[0] == others;
  for (std::size_t r = 0; r < row.one.weights.size(); ++r) {
    const bool end = r == 0 || r + 1 == row.one.weights.size();
    holds = holds && (r == 0 || (row.one.weights[r] == 2 && row.one.images[r] == 1)) &&
            row.chain.weights[r] == (end ? 2 : 4) && row.chain.images[r] == row.one.images[r] &&
            std::abs(row.equals.weights[r] - 4 * others / row.world) < 1e-12;
  }
  if (!holds) detail::fail<>("bytes_picture: what {} ranks send is not what the formula says", row.world);
}

std::vector<Row> count() {
  std::vector<Row> rows;
  for (int world = 2; world <= 64; world *= 2) {
    rows.push_back({world, from_one_rank(world), along_a_chain(world), among_equals(world)});
    check(rows.back());
  }
  return rows;
}

constexpr double kLeft = 86, kTop = 92, kWidth = 560, kHeight = 300, kRight = 210, kBottom = 88;
constexpr double kLowMb = 50, kHighMb = 10'000;

double x_of(int world) {
  return kLeft + kWidth * (std::log2(world) - 1) / 5;
}
double y_of(double megabytes) {
  return kTop + kHeight * (1 - std::log10(megabytes / kLowMb) / std::log10(kHighMb / kLowMb));
}

std::string curve(const std::vector<Row>& rows, const Traffic Row::*scheme, const char* color,
                  const std::string& label, double shift) {
  std::string path;
  std::string dots;
  for (const Row& row : rows) {
    const double x = x_of(row.world), y = y_of(mb(row.*scheme));
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x, y);
    dots += fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="3.5" class="{}"/>)"
                        "\n",
                        x, y, color);
  }
  const double end = y_of(mb(rows.back().*scheme));
  return fmt::format(R"(<path d="{}" class="curve {}-line"/>)"
                     "\n",
                     path, color) +
         dots + text(x_of(64) + 14, end + 4 + shift, "", "start", label);
}

}  // namespace

std::string bytes_picture(std::string& table) {
  const std::vector<Row> rows = count();
  table =
      "| ranks | one rank hands out | along a chain | images, of rank 0 in both | DDP, every rank "
      "|\n|---|---|---|---|---|\n";
  for (const Row& row : rows) {
    table += fmt::format("| {} | {:.0f} MB | {:.0f} MB | {:.0f} MB | {:.0f} MB |\n", row.world, mb(row.one),
                         mb(row.chain), images_mb(row.one), mb(row.equals));
  }
  std::string out =
      begin_picture(kLeft + kWidth + kRight, kTop + kHeight + kBottom, "Bytes of the busiest rank", R"(
    .curve { fill: none; stroke-width: 2 } .c0-line { stroke: #2f6fd6 } .c1-line { stroke: #c98a00 } .c3-line { stroke: #cf222e }
    @media (prefers-color-scheme: dark) {
      .c0-line { stroke: #5c9dff } .c1-line { stroke: #e3b341 } .c3-line { stroke: #ff6a61 }
    }
)");
  out += text(24, 34, "title", "start", "Bytes in and out of the busiest rank, per step");
  out += text(
      24, 56, "muted", "start",
      "ResNet-18 in f32 (46.8 MB of weights), 32 images of 224 x 224 in f32 per rank; both axes logarithmic");
  constexpr std::pair<double, const char*> kTicks[] = {{50, "50 MB"},   {100, "100 MB"},  {200, "200 MB"},
                                                       {500, "500 MB"}, {1000, "1 GB"},   {2000, "2 GB"},
                                                       {5000, "5 GB"},  {10'000, "10 GB"}};
  for (const auto& [megabytes, label] : kTicks) {
    const double y = y_of(megabytes);
    out += line(kLeft, y, kLeft + kWidth, y, megabytes == kLowMb ? "axis" : "grid");
    out += text(kLeft - 10, y + 4, "tick", "end", label);
  }
  for (const Row& row : rows) {
    out += line(x_of(row.world), kTop + kHeight, x_of(row.world), kTop + kHeight + 4, "axis");
    out += text(x_of(row.world), kTop + kHeight + 18, "tick", "middle", fmt::format("{}", row.world));
  }
  out += text(kLeft + kWidth / 2, kTop + kHeight + 42, "muted", "middle", "ranks");
  const Row& bend = *std::ranges::find_if(rows, rank_0_is_busiest, &Row::chain);
  out += text(
      24, kTop + kHeight + 70, "muted", "start",
      fmt::format("Along a chain the busiest is rank 0, with everyone's images, from {} ranks on; with {} "
                  "it is one in the middle.",
                  bend.world, bend.world / 2));
  out += curve(rows, &Row::one, "c3", "one rank hands out", 0);
  out += curve(rows, &Row::chain, "c1", "along a chain", 0);
  out += curve(rows, &Row::equals, "c0", "DDP: every rank", 0);
  return out + "</svg>\n";
}

}  // namespace athanor::examples
