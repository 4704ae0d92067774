// --augment LIST: the augmentation of training images.

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "kernels/rand_augment.h"
#include "tensor/nearest.h"
#include "trainer/flags/detail/read_flag.h"
#include "trainer/flags/detail/shared_flags.h"

namespace athanor::detail {
namespace {

using namespace read_flag;

constexpr ColourJitter kUsualJitter{0.4f, 0.4f, 0.4f, 0.1f};

/// One item of the list, "crop:4:reflect".
class Item {
 public:
  Item(const std::string& flag, const std::string& text)
      : called_(fmt::format("{} {}", flag, text)), parts_(split(text, ':')) {}

  const std::string& name() const { return parts_[0]; }
  std::size_t numbers() const { return parts_.size() - 1; }
  bool ends_with(const char* word) const { return parts_.size() > 2 && parts_.back() == word; }
  double real(std::size_t at, double low, double high) const {
    const auto value = number<double>(called_, parts_.at(at), "a number");
    ATH_CHECK(value >= low && value <= high, "{}: must be {} to {}, but got {}", called_, low, high,
              parts_.at(at));
    return value;
  }
  float real_or(std::size_t at, double low, double high, float usual) const {
    return at < parts_.size() ? static_cast<float>(real(at, low, high)) : usual;
  }
  std::int64_t count(std::size_t at, std::int64_t low, std::int64_t high) const {
    return whole(low, high)(called_, parts_.at(at));
  }
  [[noreturn]] void refuse(const char* form) const { fail<>("{}: must be {}", called_, form); }

 private:
  std::string called_;
  std::vector<std::string> parts_;
};

constexpr std::int64_t kMaxPixels = 65536;
constexpr double kMinAlpha = 1e-3, kMaxAlpha = 1e3;

/// An item's name, its allowed numbers, an example, and its effect.
struct Known {
  const char* name;
  std::vector<std::size_t> numbers;
  const char* form;
  void (*apply)(Augment&, const Item&);
};

constexpr const char* kCropForm = "crop:PIXELS or crop:PIXELS:reflect";

void read_crop(Augment& to, const Item& item) {
  to.pad = item.count(1, 1, kMaxPixels);
  if (item.ends_with("reflect")) {
    to.padding = Padding::reflect;
  } else if (item.numbers() > 1) {
    item.refuse(kCropForm);
  }
}

const std::vector<Known>& known_items() {
  static const std::vector<Known> all{
      {"crop", {1, 2}, "crop:PIXELS or crop:PIXELS:reflect", read_crop},
      {"resized-crop",
       {0, 1},
       "resized-crop or resized-crop:MINAREA",
       [](Augment& to, const Item& item) {
         to.resized_crop = RandomResizedCrop{};
         if (item.numbers() > 0) to.resized_crop->min_area = item.real(1, 1e-3, 1);
       }},
      {"flip", {0}, "flip alone", [](Augment& to, const Item&) { to.flip = true; }},
      {"alternating-flip",
       {0},
       "alternating-flip alone",
       [](Augment& to, const Item&) { to.flip = to.alternate_flip = true; }},
      {"color-jitter",
       {0, 4},
       "color-jitter or color-jitter:BRIGHTNESS:CONTRAST:SATURATION:HUE",
       [](Augment& to, const Item& item) {
         to.colour = {
             item.real_or(1, 0, 2, kUsualJitter.brightness), item.real_or(2, 0, 2, kUsualJitter.contrast),
             item.real_or(3, 0, 2, kUsualJitter.saturation), item.real_or(4, 0, 0.5, kUsualJitter.hue)};
       }},
      {"rand-augment",
       {0, 2},
       "rand-augment or rand-augment:OPERATIONS:MAGNITUDE",
       [](Augment& to, const Item& item) {
         to.rand_augment = RandAugment{};
         if (item.numbers() == 0) return;
         *to.rand_augment = {static_cast<int>(item.count(1, 1, 16)),
                             static_cast<int>(item.count(2, 0, kernels::kMaxMagnitude))};
       }},
      {"random-erasing",
       {0, 1},
       "random-erasing or random-erasing:PROBABILITY",
       [](Augment& to, const Item& item) { to.random_erasing = item.real_or(1, 1e-6, 1, 0.25f); }},
      {"cutout",
       {1},
       "cutout:SIDE",
       [](Augment& to, const Item& item) { to.cutout = item.count(1, 1, kMaxPixels); }},
      {"mixup",
       {0, 1},
       "mixup or mixup:ALPHA",
       [](Augment& to, const Item& item) {
         to.mixup = item.numbers() > 0 ? item.real(1, kMinAlpha, kMaxAlpha) : 0.2;
       }},
      {"cutmix", {0, 1}, "cutmix or cutmix:ALPHA", [](Augment& to, const Item& item) {
         to.cutmix = item.numbers() > 0 ? item.real(1, kMinAlpha, kMaxAlpha) : 1;
       }}};
  return all;
}

const Known& known_as(Text flag, const Item& item) {
  std::vector<std::string> names{"none"};
  for (const Known& known : known_items()) {
    if (known.name == item.name()) return known;
    names.push_back(known.name);
  }
  ATH_CHECK(item.name() != "none", "{}: none cannot be combined with other entries", flag);
  fail<>("{}: each entry must be one of {}, but got '{}'{}", flag, fmt::join(names, ", "), item.name(),
         did_you_mean(item.name(), names));
}

Augment read_list(Text flag, Text text) {
  Augment augment;
  if (text == "none") return augment;
  std::vector<std::string> given;
  const auto has = [&](const std::string& name) {
    return std::find(given.begin(), given.end(), name) != given.end();
  };
  for (const std::string& part : split(text, ',')) {
    const Item item(flag, part);
    const Known& known = known_as(flag, item);
    ATH_CHECK(!has(item.name()), "{}: {} must be given once, but is repeated in '{}'", flag, item.name(),
              text);
    if (std::find(known.numbers.begin(), known.numbers.end(), item.numbers()) == known.numbers.end())
      item.refuse(known.form);
    known.apply(augment, item);
    given.push_back(item.name());
  }
  constexpr const char* kEither[][2] = {
      {"crop", "resized-crop"}, {"flip", "alternating-flip"}, {"random-erasing", "cutout"}};
  for (const auto& [one, other] : kEither)
    ATH_CHECK(!has(one) || !has(other), "{}: must have {} or {}, but got both in '{}'", flag, one, other,
              text);
  return augment;
}

/// In the syntax of read_list().
std::string list_of(const Augment& augment) {
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
  add(augment.flip, augment.alternate_flip ? "alternating-flip" : "flip");
  add(colour.any(), colour == kUsualJitter ? "color-jitter"
                                           : fmt::format("color-jitter:{}:{}:{}:{}", colour.brightness,
                                                         colour.contrast, colour.saturation, colour.hue));
  add(augment.rand_augment.has_value(), fmt::format("rand-augment:{}:{}", rand.operations, rand.magnitude));
  add(augment.random_erasing > 0, fmt::format("random-erasing:{}", augment.random_erasing));
  add(augment.cutout > 0, fmt::format("cutout:{}", augment.cutout));
  add(augment.mixup > 0, fmt::format("mixup:{}", augment.mixup));
  add(augment.cutmix > 0, fmt::format("cutmix:{}", augment.cutmix));
  return items.empty() ? "none" : fmt::format("{}", fmt::join(items, ","));
}

}  // namespace

void add_augment_flag(FlagTable& flags, TrainerConfig& config) {
  flags.add("--augment LIST",
            fmt::format(
                "random augmentations of training images, separated by commas: crop:PIXELS[:reflect], "
                "resized-crop[:MINAREA], flip, alternating-flip, color-jitter[:B:C:S:H], rand-augment[:N:M], "
                "random-erasing[:P], cutout:SIDE, mixup[:ALPHA], cutmix[:ALPHA]; or none [{}]",
                list_of(config.augment)),
            config.augment, [&config](Text flag, Text text) {
              Augment augment = read_list(flag, text);
              augment.crops_when_decoded = config.augment.crops_when_decoded;
              return augment;
            });
}

}  // namespace athanor::detail
