// --augment LIST: the augmentation of training images, as text and back.

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/ranges.h>

#include "kernels/rand_augment.h"
#include "tensor/base/nearest.h"
#include "trainer/flags/detail/read_flag.h"

namespace athanor {
namespace read_flag {
namespace {

constexpr ColourJitter kUsualJitter{0.4f, 0.4f, 0.4f, 0.1f};
constexpr std::int64_t kMaxPixels = 65536;

using Numbers = std::vector<double>;

/// The range of a number of an item.
struct Range {
  double low, high;
  bool is_whole = false;
};

/// An item of the list: "crop:4:reflect". It has all of its numbers; or none, if it has usual ones.
struct Item {
  const char* name;
  const char* form;
  std::vector<Range> ranges;
  bool has_usual;
  void (*apply)(Augment&, const Numbers&);
  /// Whether 0 as its only number means that it is left out.
  bool is_off_at_0() const { return ranges.size() == 1 && std::string_view(name) != "resized-crop"; }
};

const std::vector<Item>& known_items() {
  constexpr Range kPixels{1, kMaxPixels, true}, kAmount{0, 2}, kAlpha{1e-3, 1e3};
  static const std::vector<Item> all{
      {"crop",
       "crop:PIXELS or crop:PIXELS:reflect",
       {kPixels},
       false,
       [](Augment& to, const Numbers& n) { to.pad = static_cast<std::int64_t>(n[0]); }},
      {"resized-crop",
       "resized-crop or resized-crop:MINAREA",
       {{1e-3, 1}},
       true,
       [](Augment& to, const Numbers& n) {
         to.resized_crop = RandomResizedCrop{};
         if (!n.empty()) to.resized_crop->min_area = n[0];
       }},
      {"flip", "flip alone", {}, true, [](Augment& to, const Numbers&) { to.flip = true; }},
      {"alternating-flip",
       "alternating-flip alone",
       {},
       true,
       [](Augment& to, const Numbers&) { to.flip = to.alternate_flip = true; }},
      {"vertical-flip",
       "vertical-flip alone",
       {},
       true,
       [](Augment& to, const Numbers&) { to.vertical_flip = true; }},
      {"rotation",
       "rotation:DEGREES",
       {{1e-3, 180}},
       false,
       [](Augment& to, const Numbers& n) { to.rotation = static_cast<float>(n[0]); }},
      {"blur",
       "blur or blur:PROBABILITY",
       {{1e-6, 1}},
       true,
       [](Augment& to, const Numbers& n) { to.blur = n.empty() ? 0.5f : static_cast<float>(n[0]); }},
      {"color-jitter",
       "color-jitter or color-jitter:BRIGHTNESS:CONTRAST:SATURATION:HUE",
       {kAmount, kAmount, kAmount, {0, 0.5}},
       true,
       [](Augment& to, const Numbers& n) {
         const auto amount = [&](std::size_t i) { return static_cast<float>(n[i]); };
         to.colour = n.empty() ? kUsualJitter : ColourJitter{amount(0), amount(1), amount(2), amount(3)};
       }},
      {"rand-augment",
       "rand-augment or rand-augment:OPERATIONS:MAGNITUDE",
       {{1, 16, true}, {0, kernels::kMaxMagnitude, true}},
       true,
       [](Augment& to, const Numbers& n) {
         to.rand_augment = RandAugment{};
         if (!n.empty()) *to.rand_augment = {static_cast<int>(n[0]), static_cast<int>(n[1])};
       }},
      {"trivial-augment",
       "trivial-augment alone",
       {},
       true,
       [](Augment& to, const Numbers&) { to.trivial_augment = true; }},
      {"random-erasing",
       "random-erasing or random-erasing:PROBABILITY",
       {{1e-6, 1}},
       true,
       [](Augment& to, const Numbers& n) {
         to.random_erasing = n.empty() ? 0.25f : static_cast<float>(n[0]);
       }},
      {"cutout",
       "cutout:SIDE",
       {kPixels},
       false,
       [](Augment& to, const Numbers& n) { to.cutout = static_cast<std::int64_t>(n[0]); }},
      {"mixup",
       "mixup or mixup:ALPHA",
       {kAlpha},
       true,
       [](Augment& to, const Numbers& n) { to.mixup = n.empty() ? 0.2 : n[0]; }},
      {"cutmix", "cutmix or cutmix:ALPHA", {kAlpha}, true, [](Augment& to, const Numbers& n) {
         to.cutmix = n.empty() ? 1 : n[0];
       }}};
  return all;
}

const Item& item_named(Text flag, Text name) {
  std::vector<std::string> names{"none"};
  for (const Item& known : known_items()) {
    if (known.name == name) return known;
    names.push_back(known.name);
  }
  ATH_CHECK(name != "none", "{}: none cannot be combined with other entries", flag);
  detail::fail<>("{}: each entry must be one of {}, but got '{}'{}", flag, fmt::join(names, ", "), name,
                 did_you_mean(name, names));
}

Numbers read_numbers(const Item& item, Text called, const std::vector<std::string>& parts) {
  const std::size_t count = parts.size() - 1;
  ATH_CHECK(count == item.ranges.size() || (count == 0 && item.has_usual), "{}: must be {}", called,
            item.form);
  Numbers numbers;
  for (std::size_t i = 0; i < count; ++i) {
    const auto& [low, high, is_whole] = item.ranges[i];
    const std::string& text = parts[i + 1];
    const auto value = is_whole ? static_cast<double>(whole(static_cast<std::int64_t>(low),
                                                            static_cast<std::int64_t>(high))(called, text))
                                : number<double>(called, text, "a number");
    ATH_CHECK(value >= low && value <= high, "{}: must be {} to {}, but got {}", called, low, high, text);
    numbers.push_back(value);
  }
  return numbers;
}

}  // namespace

Augment augment(Text flag, Text text) {
  Augment augment;
  if (text == "none") return augment;
  std::vector<std::string> given;
  const auto has = [&](const std::string& name) {
    return std::find(given.begin(), given.end(), name) != given.end();
  };
  for (const std::string& entry : split(text, ',')) {
    std::vector<std::string> parts = split(entry, ':');
    const Item& item = item_named(flag, parts[0]);
    ATH_CHECK(!has(item.name), "{}: {} must be given once, but is repeated in '{}'", flag, item.name, text);
    const bool reflects = parts[0] == "crop" && parts.size() == 3 && parts[2] == "reflect";
    if (reflects) parts.pop_back();
    if (item.is_off_at_0() && parts.size() == 2 && is_off(parts[1])) continue;
    if (reflects) augment.padding = Padding::reflect;
    given.push_back(parts[0]);
    item.apply(augment, read_numbers(item, fmt::format("{} {}", flag, entry), parts));
  }
  constexpr const char* kEither[][2] = {{"crop", "resized-crop"},
                                        {"flip", "alternating-flip"},
                                        {"random-erasing", "cutout"},
                                        {"rand-augment", "trivial-augment"}};
  for (const auto& [one, other] : kEither)
    ATH_CHECK(!has(one) || !has(other), "{}: must have {} or {}, but got both in '{}'", flag, one, other,
              text);
  return augment;
}

}  // namespace read_flag

std::string text(const Augment& augment) {
  std::vector<std::string> items;
  const auto add = [&items](bool wanted, const std::string& item) {
    if (wanted) items.push_back(item);
  };
  const RandomResizedCrop crop = augment.resized_crop.value_or(RandomResizedCrop{});
  const RandAugment rand = augment.rand_augment.value_or(RandAugment{});
  const ColourJitter& colour = augment.colour;
  add(augment.pad > 0,
      fmt::format("crop:{}{}", augment.pad, augment.padding == Padding::reflect ? ":reflect" : ""));
  add(augment.resized_crop.has_value(),
      crop == RandomResizedCrop{} ? "resized-crop" : fmt::format("resized-crop:{}", crop.min_area));
  add(RandomResizedCrop{.min_area = crop.min_area} != crop,  // of a program: no flag sets these
      fmt::format("of area up to {} and ratio {} to {}", crop.max_area, crop.min_ratio, crop.max_ratio));
  add(augment.flip, augment.alternate_flip ? "alternating-flip" : "flip");
  add(augment.vertical_flip, "vertical-flip");
  add(augment.rotation > 0, fmt::format("rotation:{}", augment.rotation));
  add(augment.blur > 0, fmt::format("blur:{}", augment.blur));
  add(colour.any(), colour == read_flag::kUsualJitter
                        ? "color-jitter"
                        : fmt::format("color-jitter:{}:{}:{}:{}", colour.brightness, colour.contrast,
                                      colour.saturation, colour.hue));
  add(augment.rand_augment.has_value(), fmt::format("rand-augment:{}:{}", rand.operations, rand.magnitude));
  add(augment.trivial_augment, "trivial-augment");
  add(augment.random_erasing > 0, fmt::format("random-erasing:{}", augment.random_erasing));
  add(augment.cutout > 0, fmt::format("cutout:{}", augment.cutout));
  add(augment.mixup > 0, fmt::format("mixup:{}", augment.mixup));
  add(augment.cutmix > 0, fmt::format("cutmix:{}", augment.cutmix));
  return items.empty() ? "none" : fmt::format("{}", fmt::join(items, ","));
}

}  // namespace athanor
