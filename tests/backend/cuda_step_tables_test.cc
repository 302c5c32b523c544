#include "backend/cuda_step_tables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "model/chunk_plan.h"

namespace renga {
namespace {

// A step of sequences (first position, rows), checked and turned into tables.
class CudaStepTablesTest : public ::testing::Test {
 protected:
  static constexpr int64_t kPageBytes = 1000;
  static constexpr int64_t kOpenBytes = 500;
  static constexpr int64_t kLayerBytes = 10;

  void Make(int32_t heads, int32_t kv_heads, bool open_pages, int32_t slots) {
    shape_ = {.layers = 2,
              .heads = heads,
              .kv_heads = kv_heads,
              .head_dim = 64,
              .vocab = 100,
              .context = 4096,
              .rope_inverse_frequencies = {}};
    where_ = {.pool = reinterpret_cast<uint8_t*>(0x100000),
              .page_bytes = kPageBytes,
              .open = reinterpret_cast<uint8_t*>(0x200000),
              .open_bytes = kOpenBytes,
              .scratch = reinterpret_cast<uint8_t*>(0x300000),
              .form_layer_bytes = kLayerBytes};
    step_ = std::make_unique<StepTables>(StepTables::Limits{.shape = shape_,
                                                            .backend = limits_,
                                                            .pages = 1000,
                                                            .partial_rows = 512,
                                                            .open_pages = open_pages});
    plan_ = std::make_unique<ChunkPlan>(kv_heads, limits_);
    tables_ =
        std::make_unique<CudaStepTables>(shape_, limits_, where_, open_pages, slots);
    block_.assign(static_cast<size_t>(tables_->bytes()), std::byte{0xee});
  }

  struct Rows {
    int32_t first_position;
    int32_t rows;
  };

  // Sequence i has the pages 100 i, 100 i + 1, ...
  void Build(const std::vector<Rows>& sequences) {
    tokens_.clear();
    rows_.clear();
    logit_rows_.clear();
    pages_.assign(sequences.size(), {});
    for (size_t i = 0; i < sequences.size(); ++i) {
      for (PageId page = 0; page < 80; ++page) {
        pages_[i].push_back(static_cast<PageId>(100 * i) + page);
      }
      rows_.push_back({.first_row = static_cast<int32_t>(tokens_.size()),
                       .rows = sequences[i].rows,
                       .first_position = sequences[i].first_position,
                       .pages = pages_[i],
                       .open_page = static_cast<PageId>(i)});
      for (int32_t r = 0; r < sequences[i].rows; ++r) tokens_.push_back(r % 100);
      logit_rows_.push_back(static_cast<int32_t>(tokens_.size()) - 1);
    }
    const StepBatch batch{tokens_, rows_, logit_rows_};
    ASSERT_EQ(step_->Build(batch, {.items = plan_->Build(rows_)}).ToString(), "OK");
    used_ = tables_->Build(*step_, block_.data());
  }

  template <class T>
  std::vector<T> Read(int64_t offset, int64_t count) const {
    std::vector<T> values(static_cast<size_t>(count));
    std::memcpy(values.data(), block_.data() + offset, values.size() * sizeof(T));
    return values;
  }
  const StepCounts& counts() const { return tables_->counts(); }
  std::vector<cuda::QueryTile> DecodeTiles() const {
    return Read<cuda::QueryTile>(tables_->decode_tiles(), counts().decode_tiles);
  }
  std::vector<cuda::QueryTile> PrefillTiles() const {
    return Read<cuda::QueryTile>(tables_->prefill_tiles(), counts().prefill_tiles);
  }

  GraphShape shape_;
  const BackendLimits limits_{
      .max_rows = 512, .max_logit_rows = 64, .max_sequences = 8, .max_pages = 1000};
  CudaStepTables::Places where_;
  std::unique_ptr<StepTables> step_;
  std::unique_ptr<ChunkPlan> plan_;
  std::unique_ptr<CudaStepTables> tables_;
  std::vector<std::byte> block_;
  std::vector<TokenId> tokens_;
  std::vector<SequenceRows> rows_;
  std::vector<int32_t> logit_rows_;
  std::vector<std::vector<PageId>> pages_;
  int64_t used_ = 0;
};

TEST_F(CudaStepTablesTest, EveryRowIsInExactlyOneTileForEachHead) {
  for (const auto& [heads, kv_heads] : {std::pair{9, 3}, {4, 4}, {32, 1}, {40, 2}}) {
    Make(heads, kv_heads, false, 1000);
    Build({{0, 70}, {300, 1}, {62, 4}, {1000, 150}, {63, 2}});
    const int32_t group = heads / kv_heads;
    std::vector<int> seen(tokens_.size() * static_cast<size_t>(group));
    for (const bool decode : {true, false}) {
      for (const cuda::QueryTile& tile : decode ? DecodeTiles() : PrefillTiles()) {
        const int32_t most = decode ? cuda::kDecodeTileRows : cuda::kPrefillTileRows;
        EXPECT_LE(tile.rows * tile.heads, most);
        EXPECT_EQ(tile.first_position / kPageTokens,
                  (tile.first_position + tile.rows - 1) / kPageTokens);
        for (int32_t r = 0; r < tile.rows; ++r) {
          EXPECT_EQ(step_->position_of(tile.first_row + r), tile.first_position + r);
          for (int32_t h = tile.first_head; h < tile.first_head + tile.heads; ++h) {
            ++seen[static_cast<size_t>((tile.first_row + r) * group + h)];
          }
        }
      }
    }
    EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
  }
}

TEST_F(CudaStepTablesTest, TilesFindTheirSequencesPages) {
  Make(9, 3, false, 1000);
  Build({{130, 3}, {0, 100}, {500, 1}});
  const std::vector<cuda::QueryTile> decode = DecodeTiles();
  const std::vector<int32_t> pages = Read<int32_t>(tables_->pages(), 3 + 2 + 8);
  EXPECT_EQ(decode.front().first_page, 0);
  EXPECT_EQ(pages[0], 0);
  EXPECT_EQ(pages[2], 2);
  EXPECT_EQ(PrefillTiles().front().first_page, 3);
  EXPECT_EQ(pages[3], 100);
  EXPECT_EQ(decode.back().first_page, 5);
  EXPECT_EQ(pages[5], 200);
  EXPECT_EQ(pages[12], 207);
  EXPECT_EQ(used_, tables_->pages() + 13 * 4);
}

TEST_F(CudaStepTablesTest, PartialsOfDecodeTilesDoNotOverlap) {
  Make(32, 2, false, 1000);
  Build({{255, 1}, {256, 1}, {3000, 2}});
  int32_t next = 0;
  for (const cuda::QueryTile& tile : DecodeTiles()) {
    EXPECT_EQ(tile.first_partial, next);
    next += (tile.first_position + tile.rows - 1) / cuda::kGroupPositions + 1;
  }
  EXPECT_EQ(next, 1 + 2 + 2 * 12);
  EXPECT_EQ(counts().decode_groups, 12);
}

TEST_F(CudaStepTablesTest, ASequenceWithoutRoomForItsPartialsIsPrefilled) {
  Make(4, 2, false, 20);
  Build({{4000, 1}, {4000, 1}, {900, 1}});
  EXPECT_EQ(counts().decode_tiles, 2);  // 16 and 4 groups.
  EXPECT_EQ(counts().prefill_tiles, 1);
  EXPECT_FALSE(tables_->single_rows());
}

TEST_F(CudaStepTablesTest, RowsPointToTheFormsOfTheirChunks) {
  Make(4, 2, false, 1000);
  Build({{60, 10}, {128, 1}});
  const auto places = Read<cuda::RowPlace>(tables_->row_places(), 11);
  const auto forms = Read<cuda::ChunkForm>(tables_->forms(), 3);
  EXPECT_EQ(places[0].form, 0);
  EXPECT_EQ(places[4].form, 1);
  EXPECT_EQ(places[4].position, 64);
  EXPECT_EQ(places[10].form, 2);
  EXPECT_EQ(forms[1].base, where_.pool + 1 * kPageBytes);
  EXPECT_EQ(forms[2].base, where_.pool + 102 * kPageBytes);
  EXPECT_EQ(forms[2].layer_bytes, kLayerBytes);
}

TEST_F(CudaStepTablesTest, WithOpenPagesChunksAreClosedAndTheLastOneMoves) {
  Make(4, 2, true, 1000);
  Build({{60, 140}, {5, 1}});  // Chunks 0 (open), 1, 2 whole, 3 with 8 positions; 0.
  const auto forms = Read<cuda::ChunkForm>(tables_->forms(), 5);
  EXPECT_EQ(forms[0].base, where_.open);
  EXPECT_EQ(forms[1].base, where_.scratch);
  EXPECT_EQ(forms[1].layer_bytes, 0);
  EXPECT_EQ(forms[4].base, where_.open + kOpenBytes);
  ASSERT_EQ(counts().close_items, 3);
  const auto closes = Read<cuda::CloseItem>(tables_->close_items(), 3);
  EXPECT_EQ(closes[2].form, 2);
  EXPECT_EQ(closes[2].page, 2);
  ASSERT_EQ(counts().move_items, 1);
  const auto move = Read<cuda::CopyItem>(tables_->move_items(), 1)[0];
  EXPECT_EQ(move.from.base, where_.scratch + 2 * kLayerBytes);
  EXPECT_EQ(move.to.base, where_.open);
  EXPECT_EQ(move.to.layer_bytes, kLayerBytes);
  EXPECT_EQ(move.tokens, 8);
  // A tile's own form is that of its chunk.
  for (const cuda::QueryTile& tile : PrefillTiles()) {
    EXPECT_EQ(tile.own_form, tile.first_position / kPageTokens);
  }
  EXPECT_EQ(DecodeTiles()[0].own_form, 4);
}

TEST_F(CudaStepTablesTest, AStepOfSingleRowsIsOneForAGraph) {
  Make(9, 3, true, 1000);
  Build({{63, 1}, {64, 1}, {700, 1}});
  EXPECT_TRUE(tables_->single_rows());
  EXPECT_EQ(counts().close_items, 1);
  Build({{63, 1}, {64, 2}});
  EXPECT_FALSE(tables_->single_rows());
  const StepCounts stored = Read<StepCounts>(0, 1)[0];
  EXPECT_EQ(stored.rows, 3);
  EXPECT_EQ(stored.logit_rows, 2);
}

TEST_F(CudaStepTablesTest, TheLargestStepFitsItsBlock) {
  for (const bool open : {false, true}) {
    Make(40, 1, open, 1000);
    std::vector<Rows> rows(8, {.first_position = 4032, .rows = 64});
    Build(rows);
    EXPECT_LE(used_, tables_->bytes());
    EXPECT_EQ(counts().rows, 512);
    EXPECT_LE(tables_->prefill_tiles() +
                  counts().prefill_tiles * static_cast<int64_t>(sizeof(cuda::QueryTile)),
              tables_->pages());
  }
}

}  // namespace
}  // namespace renga
