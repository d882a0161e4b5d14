// What the plugin for Slurm makes of words, compared with what the monitor makes of them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "packaging/slurm/words.h"
#include "switchyard/settings.h"

namespace switchyard::tools {
namespace {

// Good and bad ones of all kinds.
const std::vector<std::string> kWords = {"",
                                         "0",
                                         "1",
                                         "10",
                                         "20GiB",
                                         "20gib",
                                         "512MiB",
                                         "1.5g",
                                         "1073741824",
                                         "none",
                                         "NONE",
                                         "0.5",
                                         ".5",
                                         "5.",
                                         "1.2.3",
                                         "-1",
                                         "+1",
                                         "1e3",
                                         "20 G",
                                         " 20G",
                                         "20G ",
                                         "1000",
                                         "1000.1",
                                         "0.01",
                                         "0.009",
                                         "auto",
                                         "AUTO",
                                         "high",
                                         "High",
                                         "normal",
                                         "low",
                                         "1048576",
                                         "1048575",
                                         "1b",
                                         "0.5b",
                                         "1PiB",
                                         "1024T",
                                         "1025T",
                                         "1125899906842624",
                                         "1125899906842625b",
                                         "9999999999999999999999",
                                         "20KB",
                                         "3tb",
                                         "1,5G",
                                         "much",
                                         "0x10",
                                         "12345678901234567890"};

TEST(SlurmWords, ValuesAreGoodForThePluginWhereTheMonitorTakesThem) {
  for (const std::string& word : kWords) {
    const char* text = word.c_str();
    EXPECT_EQ(slurm_bad_memory(text) == nullptr, parse_quota(word).has_value()) << word;
    EXPECT_EQ(slurm_bad_weight(text) == nullptr, parse_share(word).has_value()) << word;
    EXPECT_EQ(slurm_bad_priority(text) == nullptr, parse_priority(word).has_value()) << word;
  }
  // A process with a longer one would run unmanaged.
  EXPECT_NE(slurm_bad_memory("1073741824.000000000000"), nullptr);
}

struct Site {
  slurm_site site{};
  std::string why;
  bool good = false;
  explicit Site(std::vector<std::string> words) : words_(std::move(words)) {
    std::vector<char*> pointers;
    for (std::string& word : words_) pointers.push_back(word.data());
    char text[256] = "";
    good = slurm_read_site(&site, static_cast<int>(pointers.size()), pointers.data(), text,
                           sizeof(text));
    why = text;
  }

 private:
  std::vector<std::string> words_;
};

TEST(SlurmWords, ASiteHasDefaultsAndABadWordIsNamed) {
  const Site plain({});
  EXPECT_TRUE(plain.good);
  EXPECT_STREQ(plain.site.library, "/usr/lib/switchyard/libswitchyard.so");
  EXPECT_EQ(plain.site.shards, 0u);
  EXPECT_FALSE(plain.site.all);
  const Site full(
      {"library=/l.so", "command=/c", "socket=/s", "shards=4", "gpu-memory=80GiB", "all"});
  EXPECT_TRUE(full.good) << full.why;
  EXPECT_STREQ(full.site.socket, "/s");
  EXPECT_EQ(full.site.gpu_bytes, 80 * 0x1p30);
  EXPECT_TRUE(full.site.all);
  for (const char* bad :
       {"library=l.so", "library=/a b.so", "command=c", "socket=", "shards=0", "shards=x",
        "shards=1001", "shards=-1", "gpu-memory=10", "every", "all=1"}) {
    const Site site({"shards=4", bad});
    EXPECT_FALSE(site.good) << bad;
    EXPECT_NE(site.why.find(std::string("'") + bad + "'"), std::string::npos) << site.why;
  }
  EXPECT_FALSE(Site({"gpu-memory=80GiB"}).good) << "nothing divides it";
}

TEST(SlurmWords, ShardsBecomeAPartOfEachGpu) {
  const slurm_site site = Site({"shards=4", "gpu-memory=80GiB"}).site;
  const auto part = [](const slurm_site& of, unsigned shards, unsigned gpus) {
    const slurm_part out = slurm_part_of(&of, shards, gpus);
    return std::string(out.memory) + " " + out.weight;
  };
  EXPECT_EQ(part(site, 1, 1), "20480MiB 1");
  EXPECT_EQ(part(site, 4, 1), "81920MiB 4");
  EXPECT_EQ(part(site, 9, 1), "81920MiB 9") << "no more than there is";
  EXPECT_EQ(part(site, 6, 2), "61440MiB 3");
  EXPECT_EQ(part(site, 1, 2), "10240MiB 0.5");
  EXPECT_EQ(part(site, 2, 0), "40960MiB 2");
  EXPECT_EQ(part(site, 0, 1), " ");
  EXPECT_EQ(part(Site({"shards=4"}).site, 2, 1), " 2");
  EXPECT_EQ(part(Site({}).site, 2, 1), " ");
  for (unsigned shards = 1; shards < 2000; shards += 97) {
    for (const unsigned gpus : {1u, 3u, 7u, 999u}) {
      const slurm_part out = slurm_part_of(&site, shards, gpus);
      EXPECT_TRUE(parse_quota(out.memory)) << out.memory;
      EXPECT_TRUE(parse_weight(out.weight)) << out.weight;
    }
  }
}

}  // namespace
}  // namespace switchyard::tools
