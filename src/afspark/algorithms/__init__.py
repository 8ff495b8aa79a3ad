"""Streaming algorithms, written only against the programming model."""

from afspark.algorithms.bargain_index import BargainIndex, bargain_discovery
from afspark.algorithms.features import Features
from afspark.algorithms.grep import Grep
from afspark.algorithms.heavy_hitters import HeavyHitters
from afspark.algorithms.keyword_filter import KeywordFilter
from afspark.algorithms.lexicon import Lexicon
from afspark.algorithms.linear_learners import LinearLearner, LogisticLearner
from afspark.algorithms.load_prediction import LoadPrediction, load_prediction
from afspark.algorithms.load_readings import LoadReadings
from afspark.algorithms.logistic_regression import GlobalRegression, LocalRegression, logistic_regression
from afspark.algorithms.model_training import GlobalModel, LocalTraining, train
from afspark.algorithms.online_join import OnlineJoin
from afspark.algorithms.recent_trades import VWAP, Aggregator
from afspark.algorithms.sentiment import Sentiment, keyword_sentiment
from afspark.algorithms.trade_quotes import QuoteFilter, TradeFilter, TradeQuote
from afspark.algorithms.wordcount import WordCount

__all__ = [
    "VWAP",
    "Aggregator",
    "BargainIndex",
    "Features",
    "GlobalModel",
    "GlobalRegression",
    "Grep",
    "HeavyHitters",
    "KeywordFilter",
    "Lexicon",
    "LinearLearner",
    "LoadPrediction",
    "LoadReadings",
    "LocalRegression",
    "LocalTraining",
    "LogisticLearner",
    "OnlineJoin",
    "QuoteFilter",
    "Sentiment",
    "TradeFilter",
    "TradeQuote",
    "WordCount",
    "bargain_discovery",
    "keyword_sentiment",
    "load_prediction",
    "logistic_regression",
    "train",
]
